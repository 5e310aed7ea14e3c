#include "runtime/job/reference.h"

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/job/deepspeed.h"
#include "runtime/job/keys.h"
#include "runtime/job/names.h"
#include "runtime/job/optimizers.h"
#include "runtime/job/presets.h"

namespace ds {
namespace {

using Cells = std::vector<std::string>;

std::string Row(const Cells& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    row += ' ';
    for (const char c : cell) row += c == '|' ? std::string("\\|") : std::string(1, c);
    row += " |";
  }
  return row + "\n";
}

std::string Table(const Cells& header, const std::vector<Cells>& rows) {
  std::string out = Row(header) + "|";
  for (size_t i = 0; i < header.size(); ++i) out += " --- |";
  out += "\n";
  for (const Cells& row : rows) out += Row(row);
  return out;
}

std::string Code(const std::string& text) { return text.empty() || text == "-" ? text : "`" + text + "`"; }

std::string KeyTable() {
  std::vector<Cells> rows;
  for (const Key& key : Keys()) rows.push_back({Code(key.path), key.type, key.fallback, key.meaning});
  return Table({"key", "value", "default", "meaning"}, rows);
}

std::string PresetTable() {
  std::vector<Cells> rows;
  for (const Preset& preset : Presets()) {
    const ModelConfig& m = preset.model;
    const auto number = [](int64_t value) { return std::to_string(value); };
    rows.push_back({Code(preset.name), preset.source, number(m.layers), number(m.hidden), number(m.heads),
                    number(m.kv_heads > 0 ? m.kv_heads : m.heads), number(m.ffn > 0 ? m.ffn : 4 * m.hidden),
                    number(m.vocabulary), number(m.max_positions),
                    NameOf(m.norm, kNormNames) + " " + JsonNumber(m.norm_eps),
                    NameOf(m.position, kPositionNames) +
                        (m.position == PositionKind::rope ? " " + number(static_cast<int64_t>(m.rope_theta)) : ""),
                    NameOf(m.activation, kActivationNames),
                    m.bias       ? "all"
                    : m.qkv_bias ? "qkv"
                                 : "none",
                    m.tied_head ? "yes" : "no"});
  }
  return Table({"preset", "shape of", "layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "max_positions",
                "norm, eps", "position, theta", "activation", "biases", "tied"},
               rows);
}

std::string ShownAccepts(const DeepSpeedKey& key) {
  if (key.accepts == "any") return "any";
  std::string shown;
  for (const char c : key.accepts) shown += c == '|' ? std::string("`, `") : std::string(1, c);
  return Code(shown);
}

/// Keys of one class; of refused ones those that hang on another refused key are in a table of their own.
std::string DeepSpeedTable(DeepSpeedClass kind, bool idle = false) {
  std::vector<Cells> rows;
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (key.kind != kind || key.idle.empty() == idle) continue;
    Cells row = {Code(key.path), TypeName(key.type), Code(key.fallback)};
    if (kind != DeepSpeedClass::honoured && !idle) row.push_back(ShownAccepts(key));
    row.push_back(idle ? key.idle : key.text);
    rows.push_back(row);
  }
  if (idle) return Table({"key", "value", "default", "because"}, rows);
  if (kind == DeepSpeedClass::honoured) return Table({"key", "value", "default", "meaning"}, rows);
  return Table(
      {"key", "value", "default", "accepted", kind == DeepSpeedClass::refused ? "reason" : "why it is always so"},
      rows);
}

std::string RenameTable() {
  std::vector<Cells> rows;
  for (const auto& [spelling, meant] : DeepSpeedRenames()) rows.push_back({Code(spelling), Code(meant)});
  return Table({"older or shorter spelling", "read as"}, rows);
}

void AddParameters(const std::string& kind, const std::vector<Parameter>& parameters, std::vector<Cells>& rows) {
  for (const Parameter& p : parameters) {
    rows.push_back({kind, Code(p.name), p.fallback.empty() ? "must be given" : Code(p.fallback), p.meaning});
  }
}

void AddFixed(const std::string& kind, const std::vector<FixedParameter>& parameters, std::vector<Cells>& rows) {
  for (const FixedParameter& p : parameters) {
    rows.push_back({kind, Code(p.name), p.accepts == "any" ? "any" : "only " + Code(p.accepts), p.reason});
  }
}

std::string OptimizerTable() {
  std::vector<Cells> rows;
  for (const OptimizerInfo& info : Optimizers()) {
    if (info.type == "Adam") continue;  // one table with AdamW
    const std::string type = info.type == "AdamW" ? "`AdamW`, `Adam`" : Code(info.type);
    AddParameters(type, info.parameters, rows);
    AddFixed(type, info.fixed, rows);
  }
  AddFixed("all", OptimizerFixed(), rows);
  for (const RefusedOptimizer& refused : RefusedOptimizers()) {
    rows.push_back({Code(refused.type), refused.parameters, "refused", refused.reason});
  }
  return Table({"type", "parameter", "default", "meaning"}, rows);
}

std::string SchedulerTable() {
  std::vector<Cells> rows;
  for (const SchedulerInfo& info : Schedulers())
    AddParameters(Code(NameOf(info.kind, kSchedulerNames)), info.parameters, rows);
  AddFixed("all", SchedulerFixed(), rows);
  return Table({"type", "parameter", "default", "meaning"}, rows);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ReferenceTables() {
  return {{"keys", KeyTable()},
          {"presets", PresetTable()},
          {"deepspeed-honoured", DeepSpeedTable(DeepSpeedClass::honoured)},
          {"optimizers", OptimizerTable()},
          {"schedulers", SchedulerTable()},
          {"deepspeed-by-construction", DeepSpeedTable(DeepSpeedClass::by_construction)},
          {"deepspeed-refused", DeepSpeedTable(DeepSpeedClass::refused)},
          {"deepspeed-idle", DeepSpeedTable(DeepSpeedClass::refused, true)},
          {"deepspeed-spellings", RenameTable()}};
}

std::string FillInTables(const std::string& document) {
  std::string out = document;
  for (const auto& [name, table] : ReferenceTables()) {
    const std::string marker = "<!-- table " + name + " -->\n";
    const size_t start = out.find(marker);
    const size_t end = start == std::string::npos ? start : out.find("<!-- end -->", start);
    if (end == std::string::npos)
      throw UsageError("no \"<!-- table " + name + " -->\" with an \"<!-- end -->\" after it");
    out.replace(start + marker.size(), end - start - marker.size(), "\n" + table + "\n");
  }
  return out;
}

}  // namespace ds
