#include "runtime/job/job_spec.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "kernels/fp8_linear.h"
#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/base/text.h"
#include "runtime/job/check_parallel.h"
#include "runtime/job/checks.h"
#include "runtime/job/deepspeed.h"
#include "runtime/job/keys.h"
#include "runtime/job/names.h"
#include "runtime/job/presets.h"
#include "runtime/job/problems.h"
#include "runtime/job/tokenizer_keys.h"
#include "runtime/job/tree.h"

namespace ds {
namespace {

std::string SectionOf(const std::string& path) { return path.substr(0, path.find('.')); }
std::string LeafOf(const std::string& path) { return path.substr(path.find('.') + 1); }

/// Sections in the table's order, then deepspeed.
std::vector<std::string> SectionNames() {
  std::vector<std::string> names;
  for (const Key& key : Keys()) {
    if (names.empty() || names.back() != SectionOf(key.path)) names.push_back(SectionOf(key.path));
  }
  names.push_back("deepspeed");
  return names;
}

const Key* FindKey(const std::string& path) {
  for (const Key& key : Keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

/// What the user may have meant by `name` in `section` ("" at the top).
std::string Suggest(const std::string& section, const std::string& name) {
  std::vector<std::string> here;
  for (const Key& key : Keys()) {
    if (LeafOf(key.path) == name) return "; " + key.path + " has that name";
    if (SectionOf(key.path) == section) here.push_back(LeafOf(key.path));
  }
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (key.path == name) return "; deepspeed." + name + " has that name";
  }
  if (section.empty()) return "; the nearest is " + Nearest(name, SectionNames());
  return "; the nearest is " + section + "." + Nearest(name, here);
}

void ReadKey(const Key& key, const Value& value, JobSpec& spec, Problems& problems) {
  if (value.is_null()) return;  // as good as absent
  try {
    key.read(spec, value);
  } catch (const ValueError& error) {
    problems.Add(key.path, error);
  }
}

void ReadSection(const std::string& section, const Value& value, JobSpec& spec, Problems& problems) {
  if (value.is_null()) return;
  if (value.kind != Value::Kind::map) {
    return problems.Add(section, ValueError(value, "a section is wanted; write its keys below it, indented"));
  }
  for (const auto& [name, field] : value.fields) {
    if (!name.empty() && name[0] == '_') continue;
    const std::string path = section + "." + name;
    if (const Key* key = FindKey(path)) {
      ReadKey(*key, field, spec, problems);
    } else {
      problems.AddKey(path, field, "unknown key" + Suggest(section, name));
    }
  }
}

void ReadSections(const Value& root, JobSpec& spec, Problems& problems) {
  const std::vector<std::string> sections = SectionNames();
  for (const auto& [name, value] : root.fields) {
    if ((!name.empty() && name[0] == '_') || name == "deepspeed") continue;
    if (std::find(sections.begin(), sections.end(), name) != sections.end()) {
      ReadSection(name, value, spec, problems);
    } else {
      problems.AddKey(name, value, "unknown key" + Suggest("", name));
    }
  }
}

bool IsWritten(const Value& root, const std::string& path) {
  const Value* value = FindPath(root, path);
  return value != nullptr && !value->is_null();
}

/// The preset first: the keys that are read after it override it.
void ApplyPreset(const Value& root, JobSpec& spec) {
  const Value* name = FindPath(root, "model.preset");
  if (name == nullptr || name->kind != Value::Kind::scalar) return;
  if (const Preset* preset = FindPreset(name->text)) spec.model = preset->model;
}

/// The job's default name, held to the same rules as a written one.
void NameAfterFile(const std::string& file, JobSpec& spec, Problems& problems) {
  Value name;
  name.kind = Value::Kind::scalar;
  name.text = std::filesystem::path(file).stem().string();
  name.where.file = file;
  ReadKey(*FindKey("job.name"), name, spec, problems);
}

int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Defaults that follow from other keys.
void FillIn(const Value& root, JobSpec& spec) {
  ModelConfig& model = spec.model;
  const Preset* preset = FindPreset(spec.preset);
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.ffn == 0) {
    model.ffn = model.activation == Activation::swiglu ? RoundUp((8 * model.hidden + 2) / 3, 64) : 4 * model.hidden;
  }
  if (!IsWritten(root, "model.qkv_bias") && !(preset != nullptr && preset->own_qkv_bias)) model.qkv_bias = model.bias;
  if (model.max_positions == 0) model.max_positions = spec.data.sequence_length;
  if (spec.data.sequence_length == 0) spec.data.sequence_length = model.max_positions;
  LaunchConfig& launch = spec.launch;
  if (!IsWritten(root, "launch.suspect_seconds"))
    launch.suspect_seconds = std::min(launch.suspect_seconds, launch.lease_seconds);
}

/// The layers that training.fp8 leaves in bf16, since their shape has no 8-bit products: "qkv, down".
std::string LayersOfBf16(const JobSpec& spec) {
  const ModelConfig& m = spec.model;
  const int64_t rows = spec.batch.micro_batch_size * spec.data.sequence_length;
  const bool swiglu = m.activation == Activation::swiglu;
  std::vector<std::string> layers;
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    if (!Fp8Multiplies(rows, in, out))
      layers.push_back(std::string(name) + " (" + std::to_string(in) + " to " + std::to_string(out) + ")");
  };
  add("qkv", m.hidden, (m.heads + 2 * m.kv_heads) * m.head_size());
  add("proj", m.heads * m.head_size(), m.hidden);
  add(swiglu ? "gate_up" : "up", m.hidden, swiglu ? 2 * m.ffn : m.ffn);
  add("down", m.ffn, m.hidden);
  return layers.empty() ? "" : Join(layers, ", ") + " of " + std::to_string(rows) + " rows";
}

/// What a key that is read does not do in this job.
void AddNotes(JobSpec& spec) {
  if (const std::string layers = spec.training.fp8 ? LayersOfBf16(spec) : ""; !layers.empty())
    spec.notes.push_back("training.fp8: multiplied in bf16, since 8 bits want multiples of 16: " + layers +
                         " (a micro-batch's samples x tokens).");
  if (spec.training.recompute == RecomputeMode::activation && spec.model.activation != Activation::swiglu)
    spec.notes.push_back("training.recompute: activation is as none with model.activation " +
                         NameOf(spec.model.activation, kActivationNames) +
                         ": its output is kept (docs/job-spec.md says why).");
}

void ResolvePaths(const std::string& folder, JobSpec& spec) {
  for (std::string& path : spec.data.train) path = ResolvePath(path, folder);
  for (std::string& path : spec.data.validation) path = ResolvePath(path, folder);
}

auto Fields(const JobSpec& s) {
  return std::tie(s.name, s.seed, s.preset, s.model, s.data, s.parallel, s.training, s.checkpoint, s.memory, s.launch,
                  s.precision, s.batch, s.zero, s.loss_scale, s.optimizer, s.scheduler, s.gradient_clipping);
}

}  // namespace

bool JobSpec::operator==(const JobSpec& other) const { return Fields(*this) == Fields(other); }

JobSpec ParseJobSpec(const std::string& text, const std::string& name, const std::string& folder,
                     const std::vector<Override>& overrides, int64_t ranks) {
  if (ranks < 1) throw UsageError("a job needs at least one rank, not " + std::to_string(ranks));
  std::vector<std::string> duplicates;
  const Value root = BuildTree(text, name, folder, overrides, duplicates);
  Problems problems(&root);
  for (const std::string& line : duplicates) problems.AddLine(line);
  JobSpec spec;
  ApplyPreset(root, spec);
  ReadSections(root, spec, problems);
  if (!IsWritten(root, "job.name")) NameAfterFile(name, spec, problems);
  FillIn(root, spec);
  FillInTokenizer(folder, IsWritten(root, "data.tokenizer_id"), spec, problems);
  ResolveParallel(ranks, spec, problems);
  ReadDeepSpeed(root, folder, std::max<int64_t>(1, ranks / spec.parallel.pipeline), spec, problems);
  CheckSpec(spec, problems);
  problems.ThrowIfAny();
  AddNotes(spec);
  ResolvePaths(folder, spec);
  return spec;
}

JobSpec LoadJobSpec(const std::string& path, const std::vector<Override>& overrides, int64_t ranks) {
  std::string text;
  try {
    text = ReadInputFile(path);
  } catch (const Error& error) {
    throw UsageError(std::string("job file: ") + error.what() + "; name a job spec that can be read");
  }
  JobSpec spec = ParseJobSpec(text, path, std::filesystem::path(path).parent_path().string(), overrides, ranks);
  CheckTokenizer(spec);
  return spec;
}

std::string PeekBootstrap(const std::string& path, const std::vector<Override>& overrides) {
  try {
    std::vector<std::string> ignored;
    const Value root = BuildTree(ReadInputFile(path), path, "", overrides, ignored);
    const Value* value = FindPath(root, "launch.bootstrap");
    return value && value->kind == Value::Kind::scalar && !value->is_null() ? value->text : "auto";
  } catch (const std::exception&) {
    return "auto";
  }
}

std::string ToYaml(const JobSpec& spec) {
  std::string out = "# The resolved job spec: every default is written out. It reads back to the same job.\n";
  std::string section;
  for (const Key& key : Keys()) {
    if (SectionOf(key.path) != section) {
      section = SectionOf(key.path);
      out += section + ":\n";
    }
    out += "  " + LeafOf(key.path) + ": " + key.write(spec) + "\n";
  }
  return out + "deepspeed:\n" + DeepSpeedYaml(spec);
}

}  // namespace ds
