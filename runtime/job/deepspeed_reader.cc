#include "runtime/job/deepspeed_reader.h"

#include <algorithm>

#include "runtime/base/text.h"
#include "runtime/job/deepspeed_values.h"

namespace ds {
namespace {

bool StartsWith(const std::string& text, const std::string& start) { return text.compare(0, start.size(), start) == 0; }

bool HasKeysBelow(const std::string& prefix) {
  return std::any_of(DeepSpeedKeys().begin(), DeepSpeedKeys().end(),
                     [&](const DeepSpeedKey& key) { return StartsWith(key.path, prefix); });
}

/// Names that may stand in the section `prefix` ("" or "zero_optimization."), in the table's order.
std::vector<std::string> NamesIn(const std::string& prefix) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& path) {
    if (!StartsWith(path, prefix)) return;
    const std::string name = path.substr(prefix.size(), path.find_first_of(".[", prefix.size()) - prefix.size());
    if (name != "*" && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const DeepSpeedKey& key : DeepSpeedKeys()) add(key.path);
  if (prefix.empty()) {
    add("optimizer");
    add("scheduler");
  }
  return names;
}

/// The path that `name` in the section `prefix` means in the table.
std::string Canonical(const std::string& prefix, const std::string& name) {
  const std::string path = prefix + name;
  const bool plain = name.find_first_of(".*[") == std::string::npos;  // as all names of the table are
  for (const auto& [spelling, meant] : DeepSpeedRenames()) {
    if (plain && spelling == path) return meant;
  }
  if (plain && (FindDeepSpeedKey(path) != nullptr || HasKeysBelow(path + "."))) return path;
  const std::string wild = prefix + "*";
  return FindDeepSpeedKey(wild) != nullptr || HasKeysBelow(wild + ".") ? wild : path;
}

/// Keys that configurations still have from older DeepSpeed versions or forks and that 0.19 has not: what they meant.
std::string FormerKey(const std::string& path) {
  static const std::pair<const char*, const char*> former[] = {
      {"compile.enabled", "nothing is compiled at run time: the plan does what compilation would do"},
      {"compile.disable", "nothing is compiled at run time: the plan does what compilation would do"},
      {"compile.backend", "nothing is compiled at run time: the plan does what compilation would do"},
      {"compile.kwargs", "nothing is compiled at run time: the plan does what compilation would do"},
      {"fp16.type", "it is GPT-NeoX's; bf16.enabled or fp16.enabled choose the precision"},
      {"fp16.fp16", "it is GPT-NeoX's; fp16.enabled says it"},
      {"bf16.bf16", "it is GPT-NeoX's; bf16.enabled says it"},
      {"fp32_allreduce", "gradients are always reduced in fp32"},
  };
  for (const auto& [key, meant] : former) {
    if (path == key) return std::string("refused: DeepSpeed 0.19 has no such key; ") + meant + "; remove it";
  }
  return "";
}

std::string WhyNot(const DeepSpeedKey& key) {
  const char* what = key.kind == DeepSpeedClass::refused ? "refused: " : "the opposite is always so: ";
  const std::string other = ShowAccepted(key.accepts);
  return what + key.text + "; remove the key" + (other.empty() ? "" : ", or write " + other);
}

}  // namespace

void DeepSpeedReader::Read(const Value& section) {
  ReadSection(section, "", "deepspeed.");
  NoteIdle();
}

void DeepSpeedReader::ReadSection(const Value& section, const std::string& prefix, const std::string& shown) {
  for (const auto& [name, value] : section.fields) {
    if (name.empty() || name[0] != '_') ReadField(prefix, shown, name, value);
  }
}

void DeepSpeedReader::ReadField(const std::string& prefix, const std::string& shown, const std::string& name,
                                const Value& value) {
  const std::string path = Canonical(prefix, name);
  const std::string here = shown + name;
  if (name.find_first_of(".*[") != std::string::npos && path == prefix + name) {
    return problems_.AddKey(here, value,
                            "unknown key; a key in a section is written inside it, {\"SECTION\": {\"KEY\": ...}}");
  }
  if (path.find_first_of("*[") == std::string::npos) {
    if (!seen_.insert(path).second) {
      return problems_.AddKey(here, value,
                              "another spelling of deepspeed." + path + ", which is written too; remove one");
    }
    const DeepSpeedKey* key = FindDeepSpeedKey(path);
    const bool noted = key != nullptr && key->kind == DeepSpeedClass::by_construction && !value.is_null();
    if (path != prefix + name && !noted) Note(here + ": another spelling, read as deepspeed." + path + ".");
  }
  if (path == "optimizer" || path == "scheduler") return;
  if (const DeepSpeedKey* key = FindDeepSpeedKey(path)) return ReadKey(*key, here, value);
  if (const std::string former = FormerKey(path); !former.empty()) return problems_.AddKey(here, value, former);
  if (!HasKeysBelow(path + ".")) {
    return problems_.AddKey(here, value, "unknown key; the nearest is " + shown + Nearest(name, NamesIn(prefix)));
  }
  if (path == "zero_optimization" && value.kind == Value::Kind::scalar && !IsAuto(value)) {
    return ReadZeroSwitch(here, value);
  }
  ReadInside(path, here, value);
}

/// The keys of a section, or of each section of a list.
void DeepSpeedReader::ReadInside(const std::string& path, const std::string& shown, const Value& value) {
  if (value.kind == Value::Kind::map) return ReadSection(value, path + ".", shown + ".");
  if (value.is_null() || IsAuto(value)) return;
  const std::vector<std::string> inside = NamesIn(path + ".");
  problems_.Add(shown, ValueError(value, "a section is wanted; write its keys in braces, {...}" +
                                             (inside.empty() ? "" : ", such as " + inside[0])));
}

void DeepSpeedReader::ReadZeroSwitch(const std::string& shown, const Value& value) {
  try {
    if (IsNumber(value.text)) throw ValueError(value, "a section is wanted; write {\"stage\": " + value.text + "}");
    draft_.zero_switch = AsBool(value);
    draft_.spec.zero.stage = draft_.zero_switch ? 1 : 0;
    Note(shown + ": another spelling, read as deepspeed.zero_optimization.stage: " +
         std::to_string(draft_.spec.zero.stage) + ".");
  } catch (const ValueError& error) {
    problems_.Add(shown, error);
  }
}

void DeepSpeedReader::ReadKey(const DeepSpeedKey& key, const std::string& shown, const Value& value) {
  if (value.is_null()) return;
  if (IsAuto(value) && !key.reads_auto) return ReadAuto(key, shown);
  try {
    if (key.kind == DeepSpeedClass::honoured) return key.read(draft_, value);
    CheckType(value, key.type);
    Accept(key, shown, value);
  } catch (const ValueError& error) {
    problems_.Add(shown, error);
  }
  if (HasKeysBelow(key.path + ".")) ReadInside(key.path, shown, value);
  if (HasKeysBelow(key.path + "[].")) {
    for (size_t i = 0; i < value.items.size(); ++i) {
      ReadInside(key.path + "[]", shown + "[" + std::to_string(i) + "]", value.items[i]);
    }
  }
}

void DeepSpeedReader::Accept(const DeepSpeedKey& key, const std::string& shown, const Value& value) {
  if (!key.idle.empty()) {
    const auto same =
        std::find_if(idle_.begin(), idle_.end(), [&](const auto& entry) { return entry.first == key.idle; });
    if (same == idle_.end()) {
      idle_.push_back({key.idle, {shown}});
    } else {
      same->second.push_back(shown);
    }
    return;
  }
  if (!IsAccepted(value, key.accepts)) throw ValueError(value, WhyNot(key));
  if (key.kind == DeepSpeedClass::by_construction) {
    const std::string meant = "deepspeed." + key.path;
    const bool renamed = shown != meant && meant.find_first_of("*[") == std::string::npos;
    Note(shown + (renamed ? " (read as " + meant + ")" : "") + ": " + Describe(value) +
         ": satisfied by construction: " + key.text + ".");
  }
}

void DeepSpeedReader::ReadAuto(const DeepSpeedKey& key, const std::string& shown) {
  const bool of_width = key.path == "zero_optimization.reduce_bucket_size" ||
                        key.path == "zero_optimization.stage3_prefetch_bucket_size" ||
                        key.path == "zero_optimization.stage3_param_persistence_threshold";
  const bool batch = key.path == "train_batch_size" || key.path == "train_micro_batch_size_per_gpu" ||
                     key.path == "gradient_accumulation_steps";
  if (batch) {
    draft_.auto_batch.push_back("deepspeed." + key.path);  // told when it is resolved
  } else if (of_width) {
    draft_.autos_of_width.push_back(key.path);
  } else if (key.idle.empty() && key.fallback == "null" && key.kind == DeepSpeedClass::by_construction) {
    Note(shown + ": auto: satisfied by construction: " + key.text + ".");
  } else if (key.idle.empty() && key.fallback != "null" && key.fallback != "auto") {
    Note(shown + ": auto is " + key.fallback + ", DeepSpeed's default.");
  }
}

void DeepSpeedReader::NoteIdle() {
  for (const auto& [off, keys] : idle_) Note(Join(keys, ", ") + ": of no effect: " + off + ".");
}

}  // namespace ds
