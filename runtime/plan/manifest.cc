// Checkpoints in folders: read, verify, list, choose.
#include "runtime/plan/manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifestName = "manifest.json";
/// Some hundred bytes a slice: a model of 1000 parameters on 2048 ranks is below.
constexpr uintmax_t kMostManifestBytes = uintmax_t{1} << 30;

/// N of a folder named "step-N".
std::optional<int64_t> StepOf(const std::string& name) {
  constexpr std::string_view prefix = "step-";
  if (!std::string_view(name).starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || name != "step-" + std::to_string(step)) return std::nullopt;
  return step;
}

/// Of the path itself where it is a link; 0: it is not there.
int64_t ModifiedAt(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

/// Throws RuntimeError unless `path` is a file or a link to one: opening anything else could wait for ever.
void RequireFile(const fs::path& path, const std::string& if_missing) {
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::regular:
      return;
    case fs::file_type::not_found:
      throw RuntimeError(path.string() + " is missing" + if_missing);
    case fs::file_type::directory:
      throw RuntimeError(path.string() + " is a folder, not a file");
    case fs::file_type::none:
      throw RuntimeError("cannot read " + path.string() + ": " + error.message());
    default:
      throw RuntimeError(path.string() + " is not a regular file");
  }
}

Manifest LoadManifest(const fs::path& folder) {
  fs::path path = folder / kManifestName;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw RuntimeError(folder.string() + (fs::exists(folder, error) ? " is not a folder" : " does not exist"));
  RequireFile(path, ": this is no complete checkpoint");
  if (const uintmax_t bytes = fs::file_size(path, error); !error && bytes > kMostManifestBytes)
    throw RuntimeError(path.string() + ": it has " + std::to_string(bytes) + " bytes, and no manifest has more than " +
                       std::to_string(kMostManifestBytes) + ": the checkpoint is damaged");
  return ParseManifest(ReadFile(path), path.string());
}

/// Everything in the folder belongs to the checkpoint. Hidden files are the system's own (.nfs..., .DS_Store).
void RequireNoForeignFile(const fs::path& folder, const std::set<std::string>& listed) {
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    if (name != kManifestName && name[0] != '.' && !listed.count(name))
      throw RuntimeError(i->path().string() + " is not part of this checkpoint: the manifest does not list it");
  }
  if (error) throw RuntimeError("cannot list " + folder.string() + ": " + error.message());
}

void CheckFiles(const fs::path& folder, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.files) {
    listed.insert(file.name);
    fs::path path = folder / file.name;
    RequireFile(path, "");
    std::error_code error;
    uintmax_t size = fs::file_size(path, error);
    if (error) throw RuntimeError("cannot stat " + path.string() + ": " + error.message());
    if (size != static_cast<uintmax_t>(file.bytes))
      throw RuntimeError(
          path.string() + " has " + std::to_string(size) + " bytes, the manifest states " + std::to_string(file.bytes) +
          (size < static_cast<uintmax_t>(file.bytes) ? ": it is cut short" : ": it is not this checkpoint's"));
  }
  RequireNoForeignFile(folder, listed);
}

/// A folder, and no link to one.
bool IsFolder(const fs::directory_entry& entry) {
  std::error_code error;
  return !entry.is_symlink(error) && entry.is_directory(error);
}

void SortNewestFirst(std::vector<CheckpointEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tie(b.written_ns, b.step, b.folder) < std::tie(a.written_ns, a.step, a.folder);
  });
}

}  // namespace

Manifest ReadManifest(const fs::path& folder) {
  Manifest manifest = LoadManifest(folder);
  std::error_code error;
  std::optional<int64_t> step = StepOf(fs::weakly_canonical(folder, error).filename().string());
  if (step && *step != manifest.training.step)
    throw RuntimeError((folder / kManifestName).string() + " is of step " + std::to_string(manifest.training.step) +
                       ", its folder says step " + std::to_string(*step));
  CheckFiles(folder, manifest);
  return manifest;
}

Manifest VerifyCheckpoint(const fs::path& folder, const VerifyProgress& progress) {
  Manifest manifest = ReadManifest(folder);
  int64_t done = 0, total = 0;
  for (const ManifestFile& file : manifest.files) total += file.bytes;
  for (const ManifestFile& file : manifest.files) {
    fs::path path = folder / file.name;
    uint64_t checksum = ChecksumFile(path, [&](size_t bytes) {
      done += static_cast<int64_t>(bytes);
      if (progress) progress(path, done, total);
    });
    if (checksum != file.xxh64)
      throw RuntimeError(path.string() + " is damaged: its checksum is " + ChecksumText(checksum) +
                         ", the manifest states " + ChecksumText(file.xxh64));
  }
  return manifest;
}

std::vector<CheckpointEntry> ListCheckpoints(const fs::path& root) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  for (fs::directory_iterator i(root, error), end; !error && i != end; i.increment(error)) {
    std::optional<int64_t> step = StepOf(i->path().filename().string());
    if (!step || !IsFolder(*i)) continue;
    CheckpointEntry entry{i->path(), *step, 0};
    try {
      entry.written_ns = LoadManifest(entry.folder).written_ns;
    } catch (const Error&) {
      entry.written_ns = ModifiedAt(entry.folder);
    }
    entries.push_back(std::move(entry));
  }
  SortNewestFirst(entries);
  return entries;
}

std::vector<fs::path> CheckpointRoots(const fs::path& directory) {
  std::vector<fs::path> roots{directory / "checkpoints"};
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error))
    if (IsFolder(*i) && i->path().filename() != "checkpoints") roots.push_back(i->path() / "checkpoints");
  return roots;
}

std::optional<std::string> LatestTrouble(const fs::path& root, int64_t written_ns) {
  const fs::path link = root / "latest";
  std::error_code error;
  const fs::file_status status = fs::symlink_status(link, error);
  if (!fs::exists(status) || ModifiedAt(link) < written_ns) return std::nullopt;
  if (status.type() != fs::file_type::symlink) return link.string() + " is not a symbolic link";
  const fs::path target = fs::read_symlink(link, error);
  const std::string name = target.string();
  if (!StepOf(name)) return link.string() + " points to " + name + ", which is no checkpoint of its folder";
  if (!fs::is_directory(root / target, error))
    return link.string() + " points to " + name + ", which is no folder there: the newest checkpoint was removed";
  return std::nullopt;
}

std::optional<fs::path> NewestComplete(const fs::path& directory, std::vector<std::string>* damaged) {
  std::vector<CheckpointEntry> all;
  const std::vector<fs::path> roots = CheckpointRoots(directory);
  for (const fs::path& root : roots)
    for (CheckpointEntry& entry : ListCheckpoints(root)) all.push_back(std::move(entry));
  SortNewestFirst(all);
  std::optional<fs::path> newest;
  int64_t written_ns = 0;
  for (const CheckpointEntry& entry : all) {
    try {
      written_ns = VerifyCheckpoint(entry.folder).written_ns;
      newest = entry.folder;
      break;
    } catch (const Error& error) {
      if (damaged) damaged->push_back(error.what());
    }
  }
  if (damaged)
    for (const fs::path& root : roots)
      if (auto trouble = LatestTrouble(root, written_ns)) damaged->push_back(*trouble);
  return newest;
}

fs::path ResolveCheckpoint(const fs::path& path, const std::string& purpose) {
  const std::string prefix = "cannot " + purpose + " " + path.string() + ": ";
  const std::string remedy = "; name a checkpoint (RUN/checkpoints/step-N) or a run's directory";
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) throw UsageError(prefix + error.message());
  if (!fs::exists(status)) {
    const bool dangling = fs::is_symlink(fs::symlink_status(path, error));
    throw UsageError(prefix + (dangling
                                   ? "it points to " + fs::read_symlink(path, error).string() + ", which is not there"
                                   : std::string("it does not exist")));
  }
  if (!fs::is_directory(status)) throw UsageError(prefix + "it is not a folder" + remedy);
  fs::path folder = fs::weakly_canonical(path);
  const std::string name = folder.filename().string();
  if (!fs::exists(folder / kManifestName, error) && !name.starts_with("step-")) {
    const fs::path root = name == "checkpoints" ? folder : folder / "checkpoints";
    std::vector<CheckpointEntry> entries = ListCheckpoints(root);
    if (auto trouble = LatestTrouble(root, entries.empty() ? 0 : entries.front().written_ns))
      throw UsageError(prefix + *trouble + (entries.empty() ? remedy : "; name an older checkpoint"));
    if (entries.empty()) throw UsageError(prefix + "there is no checkpoint" + remedy);
    folder = entries.front().folder;
  }
  try {
    VerifyCheckpoint(folder);
  } catch (const Error& damage) {
    throw UsageError(prefix + damage.what() + "; name an older checkpoint");
  }
  return folder;
}

}  // namespace ds
