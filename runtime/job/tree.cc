#include "runtime/job/tree.h"

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/base/text.h"
#include "runtime/job/foreign.h"
#include "runtime/job/yaml.h"

namespace ds {
namespace {

const std::string kEnv = "launch.env.";
constexpr size_t kMostParts = 100;                // of a key: its sections are nested so deep
constexpr size_t kMostDeepSpeedValues = 100'000;  // as of a job file

/// Replaces `deepspeed: PATH` by what the file holds.
void LoadDeepSpeed(Value& root, const std::string& folder, std::vector<std::string>& duplicates) {
  Value* section = root.Find("deepspeed");
  if (section == nullptr || section->kind != Value::Kind::scalar) return;
  const std::string path = ResolvePath(section->text, folder);
  std::string text;
  try {
    text = ReadInputFile(path);
  } catch (const Error& error) {
    throw UsageError(section->where.str() + ": deepspeed: " + Describe(*section) + ": " + error.what() +
                     "; write the section here, or a path relative to the job file");
  }
  const std::string extension = std::filesystem::path(path).extension().string();
  JsonOptions lenient;
  lenient.lenient = true;
  lenient.max_values = kMostDeepSpeedValues;
  Value loaded = extension == ".yaml" || extension == ".yml" ? ParseYaml(text, path, &duplicates)
                                                             : ParseJson(text, path, lenient, &duplicates);
  if (loaded.kind != Value::Kind::map) throw UsageError(loaded.where.str() + ": deepspeed: an object {...} is wanted");
  loaded.key_where = section->key_where;
  *section = std::move(loaded);
}

/// The parts of a dotted key; the names of environment variables may have dots in them.
std::vector<std::string> SplitKey(const std::string& key) {
  std::vector<std::string> parts;
  size_t start = 0;
  for (;;) {
    const bool env = key.compare(0, kEnv.size(), kEnv) == 0 && start == kEnv.size();
    const size_t end = env ? key.size() : std::min(key.find('.', start), key.size());
    parts.push_back(key.substr(start, end - start));
    if (parts.size() > kMostParts)
      throw UsageError("--set: " + Shown(key) + ": sections within more than 100 sections");
    if (parts.back().empty())
      throw UsageError("--set: " + Shown(key) + ": an empty part in the key; write SECTION.KEY=VALUE");
    if (end == key.size()) return parts;
    start = end + 1;
  }
}

void Apply(Value& root, const Override& change, std::vector<std::string>& duplicates) {
  const Position where{"--set", 0, 0};
  Value value = ParseYaml(change.value, "--set " + Shown(change.key), &duplicates);
  value.where = value.key_where = where;
  Value* at = &root;
  std::string path;
  for (const std::string& part : SplitKey(change.key)) {
    if (at->is_null()) at->kind = Value::Kind::map;
    if (at->kind != Value::Kind::map) {
      throw UsageError("--set: " + Shown(change.key) + ": " + Shown(path) + " is " + Describe(*at) +
                       ", not a section; set it as a whole");
    }
    path += (path.empty() ? "" : ".") + part;
    if (at->Find(part) == nullptr) {
      Value fresh;
      fresh.where = fresh.key_where = where;
      at->fields.emplace_back(part, std::move(fresh));
    }
    at = at->Find(part);
  }
  const Position key_where = at->key_where;
  *at = std::move(value);
  at->key_where = key_where;
}

/// The tree of a job file. DeepSpeed's JSON has comments that YAML has not: it is told what it is all the same.
Value ReadTree(const std::string& text, const std::string& name, std::vector<std::string>& duplicates) {
  try {
    return ParseYaml(text, name, &duplicates);
  } catch (const UsageError&) {
    if (!name.ends_with(".json")) throw;
    std::string foreign;
    try {
      foreign = DescribeForeign(ParseJson(text, name, {.lenient = true, .max_values = 1 << 16}), "");
    } catch (const Error&) {
    }
    if (foreign.empty()) throw;
    throw UsageError(name + ": " + foreign);
  }
}

}  // namespace

Value BuildTree(const std::string& text, const std::string& name, const std::string& folder,
                const std::vector<Override>& overrides, std::vector<std::string>& duplicates) {
  Value root = ReadTree(text, name, duplicates);
  if (root.is_null()) root.kind = Value::Kind::map;
  if (root.where.file.empty()) root.where = {name, 1, 1};
  if (root.kind != Value::Kind::map) {
    throw UsageError(root.where.str() + ": sections are wanted, not " + Describe(root) +
                     "; write model:, data:, training:");
  }
  if (const std::string foreign = DescribeForeign(root, ""); !foreign.empty()) {
    throw UsageError(root.where.str() + ": " + foreign);
  }
  for (const Override& change : overrides) {
    if (change.key.compare(0, 10, "deepspeed.") == 0) LoadDeepSpeed(root, folder, duplicates);
    Apply(root, change, duplicates);
  }
  LoadDeepSpeed(root, folder, duplicates);
  return root;
}

std::string ResolvePath(const std::string& path, const std::string& folder) {
  const std::filesystem::path joined = std::filesystem::path(folder) / path;
  return std::filesystem::absolute(joined).lexically_normal().string();
}

}  // namespace ds
