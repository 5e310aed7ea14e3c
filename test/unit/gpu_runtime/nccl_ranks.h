// Ranks of NCCL in tests: threads of this process, or processes, one GPU each.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/nccl/nccl_communicator.h"

namespace ds::test {

/// The GPUs of this machine.
int Gpus();
/// True where there are two; else says that the test was skipped.
bool HasTwoGpus();

/// Throws unless status is success. Not an assertion: for threads.
void Must(cudaError_t status);

/// Memory of the current device between guard bytes; all of it 0xff at first, which is NaN in every floating dtype.
class RankMemory {
 public:
  RankMemory(DType dtype, int64_t elements);
  /// With these bytes.
  RankMemory(DType dtype, const std::string& bytes);
  ~RankMemory();
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  Tensor tensor() const;
  operator Tensor() const { return tensor(); }
  /// Its bytes. Waits for the device first. Throws when a guard was written.
  std::string Bytes() const;

 private:
  static constexpr int64_t kGuard = 256;
  const DType dtype_;
  const int64_t elements_;
  int device_ = 0;
  char* data_ = nullptr;
};

/// Waits until what was enqueued on the communicator is done.
void Finish(Communicator& communicator, std::chrono::milliseconds timeout = std::chrono::minutes(1));

/// What became of a rank.
struct RankOutcome {
  std::string value;     ///< what its body returned
  std::string error;     ///< the message of the exception that left its body; empty: none
  bool aborted = false;  ///< that exception was CommunicatorAborted
};

using RankBody = std::function<std::string(int rank, const CommunicatorFactory& factory)>;
RankOutcome RunBody(int rank, const RankBody& body, const NcclOptions& options, Store& store);

/// Runs `body` on `size` threads, rank r on GPU r, and waits for all.
std::vector<RankOutcome> RunThreads(int size, const RankBody& body,
                                    std::chrono::milliseconds timeout = std::chrono::minutes(2));

/// A store in a folder, for ranks that are processes.
class FolderStore : public Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::filesystem::path PathOf(const std::string& key) const;
  const std::filesystem::path folder_;
};

}  // namespace ds::test
