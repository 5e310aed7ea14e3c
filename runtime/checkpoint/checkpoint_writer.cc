// How a checkpoint is committed: every rank writes and syncs its file in step-N.partial, rank 0 writes the manifest
// last and renames the folder. Until the rename nothing that existed has changed.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/agreement.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/shard.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

void RemoveAll(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw RuntimeError("cannot remove " + path.string() + ": " + error.message());
}

void Rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw SystemError("cannot rename " + from.string() + " to " + to.string(), errno);
}

fs::path PartialOf(const fs::path& folder) { return folder.string() + ".partial"; }

/// Gives `partial` the name `folder`. One that was there ends up under a partial name.
void Commit(const fs::path& partial, const fs::path& folder) {
  if (const int failed = FailpointError("checkpoint.rename"))
    throw SystemError("cannot rename " + partial.string() + " to " + folder.string(), failed);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return Rename(partial, folder);
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS)
    throw SystemError("cannot exchange " + partial.string() + " and " + folder.string(), errno);
  const fs::path old = PartialOf(folder.string() + ".replaced");  // a file system that cannot exchange
  RemoveAll(old);
  Rename(folder, old);
  Rename(partial, folder);
}

/// Removes a checkpoint; a crash in between leaves no folder that looks like one.
void Discard(const fs::path& folder) {
  Failpoint("checkpoint.remove");
  Rename(folder, PartialOf(folder));
  Failpoint("checkpoint.remove.files");
  RemoveAll(PartialOf(folder));
}

/// After step-`step` is committed: removes whole checkpoints of lower steps beyond `keep`, partial ones, and links that
/// a killed run was about to rename to `latest` (ReplaceSymlink).
void RemoveSuperfluous(const fs::path& root, int64_t step, int64_t keep) {
  std::vector<fs::path> partial;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if ((name.starts_with("step-") && name.ends_with(".partial")) || name.starts_with("latest.tmp."))
      partial.push_back(entry.path());
  }
  for (const fs::path& path : partial) RemoveAll(path);
  if (keep <= 0) return;
  int64_t kept = 1;
  for (const CheckpointEntry& entry : ListCheckpoints(root)) {
    if (entry.step >= step) continue;
    try {
      ReadManifest(entry.folder);
    } catch (const Error&) {
      continue;  // damaged: evidence, and not one of the kept
    }
    if (++kept > keep) Discard(entry.folder);
  }
}

int64_t NowNanoseconds() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Manifest Assemble(const TrainingState& state, const std::vector<std::string>& descriptions, const fs::path& folder) {
  Manifest manifest;
  manifest.training = state;
  manifest.written_ns = NowNanoseconds();
  manifest.ranks = static_cast<int>(descriptions.size());
  for (size_t rank = 0; rank < descriptions.size(); ++rank) {
    Shard shard = ParseShard(descriptions[rank]);
    std::error_code error;
    const uintmax_t size = fs::file_size(folder / shard.file.name, error);
    if (error || size != static_cast<uintmax_t>(shard.file.bytes))
      throw RuntimeError((folder / shard.file.name).string() + ", written by rank " + std::to_string(rank) +
                         ", is not visible whole to rank 0: checkpoints need a folder that all nodes share");
    for (const auto& [name, shape] : shard.parameters)
      if (auto [place, added] = manifest.parameters.emplace(name, shape); !added && place->second != shape)
        throw RuntimeError("ranks disagree about the shape of " + name);
    manifest.files.push_back(shard.file);
    manifest.slices.insert(manifest.slices.end(), shard.slices.begin(), shard.slices.end());
  }
  return manifest;
}

void WriteManifest(const fs::path& folder, const Manifest& manifest) {
  const fs::path path = folder / "manifest.json";
  if (const int error = FailpointError("checkpoint.manifest"))
    throw SystemError("cannot write " + path.string(), error);
  const std::string text = ToJson(manifest);
  ParseManifest(text, path.string());  // never commit what no reader accepts
  WriteFileAtomically(path, text);     // syncs the folder too
}

}  // namespace

std::string WriteCheckpoint(const fs::path& root, const TrainingState& state, const std::vector<StateSlice>& slices,
                            int64_t keep, Communicator& control) {
  const fs::path folder = root / ("step-" + std::to_string(state.step));
  const fs::path partial = PartialOf(folder);
  const std::string what = "cannot write checkpoint " + folder.string();
  const bool first = control.rank() == 0;
  try {
    TogetherOrThrow(control, what, [&] {
      if (!first) return;
      MakeDirectories(root);
      RemoveAll(partial);
      MakeDirectories(partial);
    });
    std::string description;
    TogetherOrThrow(control, what, [&] { description = Describe(WriteShard(partial, control.rank(), slices)); });
    const std::vector<std::string> descriptions = GatherTexts(control, description);
    TogetherOrThrow(control, what, [&] {
      if (!first) return;
      WriteManifest(partial, Assemble(state, descriptions, partial));
      Commit(partial, folder);
      SyncPath(root);
      Failpoint("checkpoint.latest");
      ReplaceSymlink(folder.filename(), root / "latest");
    });
  } catch (const Error& error) {
    // Give the space back, once all ranks know of the failure: before that, others may still be writing there.
    const bool known = dynamic_cast<const PeerFailed*>(&error) || !dynamic_cast<const CommunicatorAborted*>(&error);
    std::error_code ignored;  // the error in flight is the one to tell
    if (first && known) fs::remove_all(partial, ignored);
    throw;
  }
  if (first) {
    try {
      RemoveSuperfluous(root, state.step, keep);
    } catch (const std::exception& error) {
      LogWarning("checkpoint " + folder.string() + " is complete, but old ones could not be removed: " + error.what());
    }
  }
  return folder.string();
}

}  // namespace ds
