#include "runtime/job/data_paths.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/job/problems.h"
#include "runtime/job/tree.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

/// Whether a shard of PREFIX.tok is there: PREFIX-NNNNN-of-NNNNN.tok.
bool HasShards(const fs::path& path) {
  const std::string prefix = path.stem().string() + "-";
  std::error_code error;
  for (fs::directory_iterator i(path.parent_path(), error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name.size() == prefix.size() + 18 && name.starts_with(prefix) && name.ends_with(".tok") &&
        name.substr(prefix.size() + 5, 4) == "-of-")
      return true;
  }
  return false;
}

/// What is wrong with `path`; empty: nothing that can be seen without opening it.
std::string ProblemOf(const fs::path& path) {
  std::error_code error;
  if (path.extension() == ".idx" || path.extension() == ".bin") {
    fs::path other = path;
    other.replace_extension(path.extension() == ".idx" ? ".bin" : ".idx");
    for (const fs::path& file : {path, other})
      if (!fs::exists(file, error)) return file.string() + " does not exist; Megatron-LM's data are an .idx and a .bin";
  }
  if (!fs::exists(path, error)) {
    if (path.extension() != ".tok") return path.string() + " does not exist; paths are relative to the job file";
    if (HasShards(path)) return "";
    return path.string() +
           " does not exist, nor shards of it; `ds-convert data` makes it, and paths are relative to the job file";
  }
  if (!fs::is_regular_file(path, error) && !fs::is_directory(path, error))
    return path.string() + " is neither a regular file nor a folder";
  if (::access(path.c_str(), R_OK) != 0)
    return path.string() + " cannot be read: " + std::generic_category().message(errno);
  return "";
}

}  // namespace

void CheckDataPaths(const JobSpec& spec, const std::string& path, const std::vector<Override>& overrides) {
  std::vector<std::pair<const char*, std::string>> found;
  const std::pair<const char*, const std::vector<std::string>*> keys[] = {{"data.train", &spec.data.train},
                                                                          {"data.validation", &spec.data.validation}};
  for (const auto& [key, files] : keys)
    for (const std::string& file : *files)
      if (std::string problem = ProblemOf(file); !problem.empty()) found.emplace_back(key, std::move(problem));
  if (found.empty()) return;
  // The tree once more, for the place in the file.
  std::vector<std::string> duplicates;
  const Value root = BuildTree(ReadInputFile(path), path, fs::path(path).parent_path().string(), overrides, duplicates);
  Problems problems(&root);
  for (const auto& [key, problem] : found) problems.Add(key, problem);
  problems.ThrowIfAny();
}

}  // namespace ds
