// Checkpoints: parameters and optimizer state by parameter name and slice, written by all ranks, committed as one.
//
//   step-N/                      appears under this name only when every byte of it is on disk
//     manifest.json              written last: training state, files with size and checksum, every slice's place
//     rank-R.safetensors         the slices that rank R owns
//
// A slice is a run of elements of a parameter (row-major), so any layout can read what any other wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu.h"
#include "kernels/tensor.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/manifest.h"

namespace ds {

/// A run of elements of one parameter's state which this rank owns.
struct StateSlice {
  std::string param;
  StateKind state = StateKind::master;  ///< master, moment1 or moment2
  Shape shape;                          ///< of the whole parameter as exported (without vocabulary padding)
  int64_t begin = 0;                    ///< first element, in the parameter
  Tensor data;                          ///< f32, one-dimensional; empty where `read` brings it
  Gpu* gpu = nullptr;                   ///< whose memory it is in, of the thread that writes; null: the host's
  /// Of a slice that is in no memory: fills `out` (f32, of the host) with its elements from `first` on, of
  /// `read_count`.
  std::function<void(int64_t first, Tensor out)> read = {};
  int64_t read_count = 0;

  int64_t count() const { return read ? read_count : data.numel(); }
};

/// Writes `root`/step-N and moves `root`/latest to it; then removes what it makes superfluous: whole checkpoints of
/// lower steps beyond the `keep` newest (0: keeps all) and partial ones that a crash left. A step-N that was there is
/// replaced. Collective over `control`, whose ranks share `root`. A failure on any rank throws on every rank the
/// message of the first that failed, and leaves earlier checkpoints as they were; so does a crash at any point. Returns
/// the folder. The cost in memory does not depend on the size of the slices.
std::string WriteCheckpoint(const std::filesystem::path& root, const TrainingState& state,
                            const std::vector<StateSlice>& slices, int64_t keep, Communicator& control);

/// An opened checkpoint. Opening checks its manifest and the sizes of its files; a file's checksum is verified before
/// anything is read from it, so a rank pays for the files that it needs. Throws RuntimeError naming the file and what
/// is wrong with it. Thread-safe.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& folder);
  ~CheckpointReader();
  const TrainingState& state() const;
  /// Every parameter with its shape.
  const std::map<std::string, Shape>& parameters() const;
  bool Has(const std::string& param, StateKind state) const;
  /// Elements [begin, begin + out.numel()) of a parameter's state into `out` (f32), from whichever slices hold them.
  void Read(const std::string& param, StateKind state, int64_t begin, Tensor out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws RuntimeError, naming the file, unless each of a checkpoint's files is in the safetensors format and holds
/// exactly the tensors that the manifest places in it, F32 and of the stated size. Reads headers alone: together with
/// VerifyCheckpoint it shows that everything can be read.
void CheckTensors(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace ds
