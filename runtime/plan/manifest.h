// Checkpoint manifests: what a checkpoint holds, read and checked without a device. The launcher finds what to resume
// from with this; runtime/checkpoint writes checkpoints and reads their tensors.
//
// CHECKPOINT/manifest.json is written last and names everything else. Its last field, `xxh64`, is the checksum of all
// bytes before that field. docs/checkpoint.md describes the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "runtime/plan/plan.h"

namespace ds {

/// Everything besides tensors that a resume needs; doubles round-trip exactly.
struct TrainingState {
  int64_t step = 0;  ///< steps done
  int64_t tokens = 0;
  int64_t samples = 0;          ///< position in the data: global samples consumed
  int64_t optimizer_steps = 0;  ///< without skipped ones (bias correction)
  double loss_scale = 1;
  int64_t good_steps = 0;  ///< since the last overflow or change of the scale
  int hysteresis_left = 0;
  uint64_t seed = 0;  ///< all random numbers are functions of seed and position
  int data_width = 1;
  double final_loss = 0;
  std::string data;      ///< Dataset::identity of data.train; empty: written before this was remembered
  std::string job_yaml;  ///< the resolved spec that wrote it
};

struct ManifestFile {
  std::string name;  ///< in the checkpoint's folder
  int64_t bytes = 0;
  uint64_t xxh64 = 0;
};

/// Elements [begin, begin + count) of one parameter's state: tensor `tensor` of file `file`.
struct ManifestSlice {
  std::string param;
  StateKind state = StateKind::master;  ///< master, moment1 or moment2
  int64_t begin = 0, count = 0;
  std::string file, tensor;
};

struct Manifest {
  TrainingState training;
  int64_t written_ns = 0;  ///< when, in nanoseconds since 1970 by the clock of rank 0
  int ranks = 1;           ///< that wrote it
  std::map<std::string, Shape> parameters;
  std::vector<ManifestFile> files;
  std::vector<ManifestSlice> slices;
};

inline constexpr int kManifestVersion = 1;

/// "master", "moment1", "moment2"; and back (nullopt: none of them).
std::string CheckpointStateName(StateKind state);
std::optional<StateKind> ParseCheckpointState(const std::string& name);

/// The text of manifest.json, checksum included.
std::string ToJson(const Manifest& manifest);

/// Reads and checks the text of a manifest: its checksum, its version, that the slices of every (parameter, state)
/// cover it exactly once and that every file and parameter they name is listed. Throws RuntimeError: `name` and what is
/// wrong.
Manifest ParseManifest(const std::string& text, const std::string& name);

/// The manifest of a checkpoint's folder, whose files are there with the right sizes (their bytes are not read).
/// Throws RuntimeError that names the file and what is wrong with it.
Manifest ReadManifest(const std::filesystem::path& folder);

/// Told while files are read: the file, and how many bytes of the checkpoint's `total` were read so far.
using VerifyProgress = std::function<void(const std::filesystem::path& file, int64_t done, int64_t total)>;

/// ReadManifest, then the checksum of every file. Throws RuntimeError likewise. Reads every byte of the checkpoint.
Manifest VerifyCheckpoint(const std::filesystem::path& folder, const VerifyProgress& progress = {});

struct CheckpointEntry {
  std::filesystem::path folder;
  int64_t step = 0;        ///< by the folder's name
  int64_t written_ns = 0;  ///< by its manifest; of a folder without a readable one, when it was last modified
};

/// The folders `root`/step-N (`root`: RUN/checkpoints), whole or damaged, newest first: by time, then by step. None
/// where `root` does not exist. Symbolic links and partial checkpoints (`step-N.partial`) are not listed.
std::vector<CheckpointEntry> ListCheckpoints(const std::filesystem::path& root);

/// The folders below `directory` that may hold checkpoints: a run's own (DIR/checkpoints), and those of a job's runs
/// (DIR/RUN-ID/checkpoints).
std::vector<std::filesystem::path> CheckpointRoots(const std::filesystem::path& directory);

/// What is wrong with `root`/latest: it names a checkpoint that is not there, or is no link to one. nullopt: nothing,
/// or it is older than `written_ns` (then it does not matter), or absent. Readers go by the folders; this finds what a
/// list of folders cannot: that the newest one is gone.
std::optional<std::string> LatestTrouble(const std::filesystem::path& root, int64_t written_ns);

/// For `--resume auto`: the newest checkpoint that verifies, below a run's directory or a job's (CheckpointRoots);
/// nullopt: none. Newer ones that do not verify are skipped, and why is added to `damaged`; so is a newest one that was
/// removed whole.
std::optional<std::filesystem::path> NewestComplete(const std::filesystem::path& directory,
                                                    std::vector<std::string>* damaged);

/// The checkpoint that `path` names: itself, or the newest of a run's directory (or of its `checkpoints`). Returns its
/// folder, verified. Throws UsageError "cannot PURPOSE PATH: ...": nothing there, or damaged, and how.
std::filesystem::path ResolveCheckpoint(const std::filesystem::path& path, const std::string& purpose = "read");

/// For `--resume PATH`.
inline std::filesystem::path ResolveResume(const std::filesystem::path& path) {
  return ResolveCheckpoint(path, "resume from");
}

}  // namespace ds
