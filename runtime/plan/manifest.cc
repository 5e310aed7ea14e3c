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

int64_t ModifiedAt(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

Manifest LoadManifest(const fs::path& folder) {
  fs::path path = folder / kManifestName;
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw RuntimeError(folder.string() + " is not a folder");
  if (!fs::exists(path, error)) throw RuntimeError(path.string() + " is missing: this is no complete checkpoint");
  return ParseManifest(ReadFile(path), path.string());
}

void CheckFiles(const fs::path& folder, const Manifest& manifest) {
  std::set<std::string> listed;
  for (const ManifestFile& file : manifest.files) {
    listed.insert(file.name);
    fs::path path = folder / file.name;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) throw RuntimeError(path.string() + " is missing");
    uintmax_t size = fs::file_size(path, error);
    if (error) throw RuntimeError("cannot stat " + path.string() + ": " + error.message());
    if (size != static_cast<uintmax_t>(file.bytes))
      throw RuntimeError(
          path.string() + " has " + std::to_string(size) + " bytes, the manifest states " + std::to_string(file.bytes) +
          (size < static_cast<uintmax_t>(file.bytes) ? ": it is cut short" : ": it is not this checkpoint's"));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors" && !listed.count(entry.path().filename().string()))
      throw RuntimeError(entry.path().string() + " is not part of this checkpoint: the manifest does not list it");
}

/// The folders below `directory` that hold checkpoints: a run's own, and those of a job's runs.
std::vector<fs::path> CheckpointRoots(const fs::path& directory) {
  std::vector<fs::path> roots{directory / "checkpoints"};
  std::error_code error;
  for (fs::directory_iterator i(directory, error), end; !error && i != end; i.increment(error))
    if (!i->is_symlink() && i->is_directory()) roots.push_back(i->path() / "checkpoints");
  return roots;
}

void SortNewestFirst(std::vector<CheckpointEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tie(b.written_ns, b.step, b.folder) < std::tie(a.written_ns, a.step, a.folder);
  });
}

}  // namespace

Manifest ReadManifest(const fs::path& folder) {
  Manifest manifest = LoadManifest(folder);
  CheckFiles(folder, manifest);
  return manifest;
}

Manifest VerifyCheckpoint(const fs::path& folder) {
  Manifest manifest = ReadManifest(folder);
  std::optional<int64_t> step = StepOf(fs::weakly_canonical(folder).filename().string());
  if (step && *step != manifest.training.step)
    throw RuntimeError((folder / kManifestName).string() + " is of step " + std::to_string(manifest.training.step) +
                       ", its folder says step " + std::to_string(*step));
  for (const ManifestFile& file : manifest.files) {
    fs::path path = folder / file.name;
    uint64_t checksum = ChecksumFile(path);
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
    if (!step || i->is_symlink() || !i->is_directory()) continue;
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

std::optional<fs::path> NewestComplete(const fs::path& directory, std::vector<std::string>* damaged) {
  std::vector<CheckpointEntry> all;
  for (const fs::path& root : CheckpointRoots(directory))
    for (CheckpointEntry& entry : ListCheckpoints(root)) all.push_back(std::move(entry));
  SortNewestFirst(all);
  for (const CheckpointEntry& entry : all) {
    try {
      VerifyCheckpoint(entry.folder);
      return entry.folder;
    } catch (const Error& error) {
      if (damaged) damaged->push_back(error.what());
    }
  }
  return std::nullopt;
}

fs::path ResolveCheckpoint(const fs::path& path, const std::string& purpose) {
  const std::string prefix = "cannot " + purpose + " " + path.string() + ": ";
  const std::string remedy = "; name a checkpoint (RUN/checkpoints/step-N) or a run's directory";
  std::error_code error;
  if (!fs::exists(path, error)) throw UsageError(prefix + "it does not exist");
  if (!fs::is_directory(path, error)) throw UsageError(prefix + "it is not a folder" + remedy);
  fs::path folder = fs::weakly_canonical(path);
  const std::string name = folder.filename().string();
  if (!fs::exists(folder / kManifestName, error) && !name.starts_with("step-")) {
    std::vector<CheckpointEntry> entries = ListCheckpoints(name == "checkpoints" ? folder : folder / "checkpoints");
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
