#include "runtime/job/data_paths.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string_view>

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

/// Whether something in a folder, or below it, has a name that data has.
bool HoldsData(const fs::path& folder) {
  static const std::set<std::string> names = {".txt", ".jsonl", ".ndjson", ".json", ".tok", ".idx"};
  std::error_code error;
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator i(folder, kOptions, error), end; !error && i != end; i.increment(error)) {
    if (i->is_symlink(error) && i->is_directory(error)) return true;  // workers follow it
    fs::path name = i->path().filename();
    if (name.extension() == ".gz" || name.extension() == ".zst") name = name.stem();
    if (names.contains(name.extension().string())) return true;
  }
  return error.value() != 0;  // what could not be looked at may hold some
}

/// Zstandard's frames of data for others, 0x184D2A50 to 0x184D2A5F (RFC 8878): a file may begin with one.
bool IsSkippableFrame(std::string_view begin) {
  return begin.size() >= 4 && (begin[0] & 0xF0) == 0x50 && begin.substr(1, 3) == "\x2a\x4d\x18";
}

/// What the first bytes of a file tell.
std::string ProblemOfBytes(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char bytes[9] = {};
  const ssize_t size = fd < 0 ? -1 : ::read(fd, bytes, sizeof bytes);
  const int why = errno;
  if (fd >= 0) ::close(fd);
  if (size < 0) return path.string() + " cannot be read: " + std::generic_category().message(why);
  const std::string_view begin(bytes, static_cast<size_t>(size));
  const std::string kind = path.extension().string();
  if (kind == ".tok" && !begin.starts_with("DSTOKENS"))
    return path.string() + " does not begin as token files do; prepare one with `ds-convert data`";
  if (kind == ".idx" && begin != std::string_view("MMIDIDX\0\0", 9))
    return path.string() + " does not begin as Megatron-LM's .idx files do";
  if ((kind == ".gz" || kind == ".zst") && !begin.starts_with("\x1f\x8b") && !begin.starts_with("\x28\xb5\x2f\xfd") &&
      !IsSkippableFrame(begin))
    return path.string() + ": its name says that it is compressed, its first bytes are neither gzip's nor Zstandard's";
  return "";
}

/// What is wrong with `path`; empty: nothing that its first bytes tell.
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
    if (path.parent_path().filename() == "kjv" && path.parent_path().parent_path().filename() == "data")
      return path.string() + " does not exist; `scripts/quickstart.sh --prepare` makes the data of the shipped configs";
    return path.string() +
           " does not exist, nor shards of it; `ds-convert data` makes it, and paths are relative to the job file";
  }
  if (!fs::is_regular_file(path, error) && !fs::is_directory(path, error))
    return path.string() + " is neither a regular file nor a folder";
  if (fs::is_directory(path, error)) {
    if (::access(path.c_str(), R_OK) != 0)
      return path.string() + " cannot be read: " + std::generic_category().message(errno);
    if (!HoldsData(path))
      return path.string() +
             " holds no data: no *.txt, *.jsonl or *.ndjson (or those with .gz or .zst), no *.tok and no *.idx";
    return "";
  }
  return ProblemOfBytes(path);
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
