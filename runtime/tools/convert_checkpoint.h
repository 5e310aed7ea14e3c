// ds-convert inspect and verify, for checkpoints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds {

/// What a path names: one checkpoint, or the folders of checkpoints of a run or of a job's runs.
struct CheckpointPath {
  std::filesystem::path checkpoint;          ///< empty: `roots` are meant
  std::vector<std::filesystem::path> roots;  ///< each holds step-N folders, or is damaged
};

/// nullopt: `path` has nothing to do with checkpoints. Throws UsageError: a link to a checkpoint that is not there, a
/// run without checkpoints.
std::optional<CheckpointPath> FindCheckpoints(const std::string& path);

/// Prints what is there. Throws RuntimeError when something is damaged, once all was printed. Reads no tensors.
void InspectCheckpoints(const CheckpointPath& path);

/// Reads every byte, shows how far it is on a terminal (standard error), prints a line a checkpoint. Throws
/// RuntimeError when something is damaged, once all was read.
void VerifyCheckpoints(const CheckpointPath& path);

}  // namespace ds
