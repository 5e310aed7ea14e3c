// Checkpoints that are written while training goes on. Begin() copies this rank's slices into host memory, which is all
// that training waits for; a thread then runs WriteCheckpoint over the copy, with a communicator of its own. So the
// bytes and the order of the commit are those of a synchronous checkpoint.
//
// One write at a time. A rank that fails makes WriteCheckpoint throw on every rank; when, a rank learns by itself:
// callers that must agree on a step share failed().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/context.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/state/host_memory.h"

namespace ds {

class BackgroundCheckpoints {
 public:
  struct Options {
    std::filesystem::path root;  ///< RUN/checkpoints
    int64_t keep = 0;            ///< as WriteCheckpoint's
    int64_t snapshot_bytes = 0;  ///< what all slices take together, at most
    int64_t attempt = 1;
    KernelContext kernel;  ///< whose threads copy
  };
  /// Takes the memory for the copy, at once and whole. `control` connects the ranks' writing threads
  /// and nobody else, and outlives this.
  BackgroundCheckpoints(Options options, Communicator& control);
  /// Abandons the write in flight, on every rank: what it left is no checkpoint.
  ~BackgroundCheckpoints();

  /// Copies `slices` and has them written as the checkpoint of `state`. No write may be in flight.
  void Begin(const TrainingState& state, const std::vector<StateSlice>& slices);

  /// Whether a write is in flight.
  bool busy() const;
  /// Whether the last write failed; Wait() says how.
  bool failed() const { return failed_; }
  /// Returns when no write is in flight. Throws what the write threw.
  void Wait();

  struct Written {
    int64_t step = 0;
    std::string folder;
  };
  /// The checkpoint that was completed since the last call; nullopt: none. Never blocks on a disk.
  std::optional<Written> TakeWritten();

 private:
  void Loop();

  const Options options_;
  Communicator& control_;
  HostMemory memory_;
  // Owned by the training thread until Begin() sets busy_, then by the writing thread until it clears it.
  TrainingState state_;
  std::vector<StateSlice> slices_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false, ending_ = false;
  std::optional<Written> written_;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

}  // namespace ds
