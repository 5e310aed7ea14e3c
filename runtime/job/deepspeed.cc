#include "runtime/job/deepspeed.h"

#include <algorithm>
#include <set>

#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/job/batch.h"
#include "runtime/job/deepspeed_values.h"
#include "runtime/job/optimizers.h"

namespace ds {
namespace {

const DeepSpeedKey* FindKey(const std::string& path) {
  for (const DeepSpeedKey& key : DeepSpeedKeys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

/// Names that may stand in the section `prefix` ("" or "zero_optimization."), in the table's order.
std::vector<std::string> NamesIn(const std::string& prefix) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (path.compare(0, prefix.size(), prefix) != 0) return;
    const std::string name = path.substr(prefix.size(), path.find('.', prefix.size()) - prefix.size());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const DeepSpeedKey& key : DeepSpeedKeys()) add(key.path);
  if (prefix.empty()) {
    add("optimizer");
    add("scheduler");
  }
  return names;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

class SectionReader {
 public:
  SectionReader(DeepSpeedDraft& draft, Problems& problems) : draft_(draft), problems_(problems) {}

  void Read(const Value& section, const std::string& prefix) {
    for (const auto& [name, value] : section.fields) {
      if (name.empty() || name[0] != '_') ReadField(Canonical(prefix + name), prefix, name, value);
    }
  }

 private:
  static std::string Canonical(const std::string& path) {
    for (const auto& [spelling, meant] : DeepSpeedRenames()) {
      if (spelling == path) return meant;
    }
    return path;
  }

  void ReadField(const std::string& path, const std::string& prefix, const std::string& name, const Value& value) {
    const std::string shown = "deepspeed." + prefix + name;
    if (!seen_.insert(path).second) {
      return problems_.AddKey(shown, value,
                              "another spelling of deepspeed." + path + ", which is written too; remove one");
    }
    if (path == "optimizer" || path == "scheduler") return;  // runtime/job/optimizers.h reads them
    if (const DeepSpeedKey* key = FindKey(path)) return ReadKey(*key, shown, value);
    const std::vector<std::string> inside = NamesIn(path + ".");
    if (inside.empty()) {
      return problems_.AddKey(shown, value,
                              "unknown key; the nearest is deepspeed." + prefix + Nearest(name, NamesIn(prefix)));
    }
    if (value.kind == Value::Kind::map) return Read(value, path + ".");
    if (path == "zero_optimization" && value.kind == Value::Kind::scalar) return ReadZeroSwitch(shown, value);
    if (!value.is_null() && !IsAuto(value)) {
      problems_.Add(shown, ValueError(value, "a section is wanted, with keys such as " + inside[0]));
    }
  }

  /// `"zero_optimization": true`, DeepSpeed's oldest spelling of stage 1.
  void ReadZeroSwitch(const std::string& shown, const Value& value) {
    try {
      draft_.spec.zero.stage = AsBool(value) ? 1 : 0;
    } catch (const ValueError& error) {
      problems_.Add(shown, error);
    }
  }

  void ReadKey(const DeepSpeedKey& key, const std::string& shown, const Value& value) {
    CheckFields(key.path, shown, value);
    if (value.is_null()) return;
    if (IsAuto(value)) {
      if (key.fallback != "null")
        draft_.spec.notes.push_back(shown + ": auto is " + key.fallback + ", DeepSpeed's default.");
      return;
    }
    try {
      if (key.kind == DeepSpeedClass::honoured) return key.read(draft_, value);
      if (!IsAccepted(value, key.accepts)) throw ValueError(value, WhyNot(key));
      if (value.kind == Value::Kind::scalar && key.accepts == "any") return Note(key, shown, value);
      if (key.kind == DeepSpeedClass::by_construction) Note(key, shown, value);
    } catch (const ValueError& error) {
      problems_.Add(shown, error);
    }
  }

  void Note(const DeepSpeedKey& key, const std::string& shown, const Value& value) {
    draft_.spec.notes.push_back(shown + ": " + Describe(value) + ": satisfied by construction: " + key.text + ".");
  }

  static std::string WhyNot(const DeepSpeedKey& key) {
    const char* what = key.kind == DeepSpeedClass::refused ? "refused: " : "the opposite is always so: ";
    return what + key.text + "; remove the key, or write " + ShowAccepted(key.accepts);
  }

  /// The fields of a section that is one row of the table.
  void CheckFields(const std::string& path, const std::string& shown, const Value& value) {
    for (const auto& [section, names] : DeepSpeedSectionFields()) {
      if (section != path) continue;
      const std::vector<std::string> known = Words(names);
      for (const auto& [name, field] : value.fields) {
        if (name[0] == '_' || std::find(known.begin(), known.end(), name) != known.end()) continue;
        problems_.AddKey(shown + "." + name, field,
                         "unknown key; the nearest is " + shown + "." + Nearest(name, known));
      }
    }
  }

  DeepSpeedDraft& draft_;
  Problems& problems_;
  std::set<std::string> seen_;
};

void ResolvePrecision(const DeepSpeedDraft& draft, Problems& problems) {
  if (draft.fp16 && draft.bf16) {
    problems.Add("deepspeed.fp16.enabled", "bf16.enabled is true as well; enable one of them");
  }
  draft.spec.precision = draft.bf16 ? Precision::bf16 : draft.fp16 ? Precision::fp16 : Precision::fp32;
}

void CheckDegrees(const DeepSpeedDraft& draft, Problems& problems) {
  const auto check = [&](const char* key, std::optional<int64_t> here, const char* other, int64_t there) {
    if (!here || *here == there) return;
    problems.Add(key, "not equal to " + std::string(other) + ", which is " + std::to_string(there) +
                          "; write the same in both, or leave this key out");
  };
  check("deepspeed.sequence_parallel_size", draft.sequence_parallel_size, "parallel.sequence",
        draft.spec.parallel.sequence);
  const bool set = draft.autotp_size && *draft.autotp_size != 0;
  check("deepspeed.tensor_parallel.autotp_size", set ? draft.autotp_size : std::nullopt, "parallel.tensor",
        draft.spec.parallel.tensor);
}

void ResolveLogEvery(const DeepSpeedDraft& draft, const Value& root) {
  if (!draft.steps_per_print) return;
  const Value* log_every = FindPath(root, "training.log_every");
  if (log_every == nullptr || log_every->is_null()) {
    draft.spec.training.log_every = *draft.steps_per_print;
  } else {
    draft.spec.notes.push_back("deepspeed.steps_per_print: training.log_every is written too, and wins.");
  }
}

}  // namespace

void ReadDeepSpeed(const Value& root, int64_t ranks, JobSpec& spec, Problems& problems) {
  static const Value none;
  const Value* section = root.Find("deepspeed");
  if (section == nullptr) section = &none;
  if (section->kind != Value::Kind::map && !section->is_null()) {
    return problems.Add("deepspeed",
                        ValueError(*section, "a section, or a path to a DeepSpeed configuration, is wanted"));
  }
  DeepSpeedDraft draft(spec);
  SectionReader(draft, problems).Read(*section, "");
  ResolvePrecision(draft, problems);
  CheckDegrees(draft, problems);
  ResolveLogEvery(draft, root);
  ResolveBatch(draft, ranks, problems);
  const Value* optimizer = section->Find("optimizer");
  ReadOptimizer(optimizer != nullptr ? *optimizer : none, spec, problems);
  const Value* scheduler = section->Find("scheduler");
  ReadScheduler(scheduler != nullptr ? *scheduler : none, spec, problems);
}

std::string DeepSpeedYaml(const JobSpec& spec) {
  std::string out;
  const auto line = [&](int depth, const std::string& key, const std::string& value) {
    out += std::string(static_cast<size_t>(2 * depth), ' ') + key + ":" + (value.empty() ? "" : " " + value) + "\n";
  };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  line(1, "train_batch_size", std::to_string(spec.batch.train_batch_size));
  line(1, "train_micro_batch_size_per_gpu", std::to_string(spec.batch.micro_batch_size));
  line(1, "gradient_accumulation_steps", std::to_string(spec.batch.accumulation));
  line(1, "gradient_clipping", JsonNumber(spec.gradient_clipping));
  line(1, "bf16", "");
  line(2, "enabled", flag(spec.precision == Precision::bf16));
  line(1, "fp16", "");
  line(2, "enabled", flag(spec.precision == Precision::fp16));
  line(2, "loss_scale", JsonNumber(spec.loss_scale.fixed));
  line(2, "initial_scale_power", std::to_string(spec.loss_scale.initial_power));
  line(2, "loss_scale_window", std::to_string(spec.loss_scale.window));
  line(2, "hysteresis", std::to_string(spec.loss_scale.hysteresis));
  line(2, "consecutive_hysteresis", flag(spec.loss_scale.consecutive_hysteresis));
  line(2, "min_loss_scale", JsonNumber(spec.loss_scale.min_scale));
  line(1, "zero_optimization", "");
  line(2, "stage", std::to_string(spec.zero.stage));
  line(2, "reduce_bucket_size", std::to_string(spec.zero.reduce_bucket_size));
  line(2, "allgather_bucket_size", std::to_string(spec.zero.allgather_bucket_size));
  line(2, "stage3_prefetch_bucket_size", std::to_string(spec.zero.prefetch_bucket_size));
  line(2, "stage3_param_persistence_threshold", std::to_string(spec.zero.param_persistence_threshold));
  line(2, "stage3_model_persistence_threshold", std::to_string(spec.zero.model_persistence_threshold));
  line(2, "stage3_max_live_parameters", std::to_string(spec.zero.max_live_parameters));
  line(2, "stage3_max_reuse_distance", std::to_string(spec.zero.max_reuse_distance));
  return out + OptimizerYaml(spec);
}

}  // namespace ds
