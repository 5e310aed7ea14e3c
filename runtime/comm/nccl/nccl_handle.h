// Owns one ncclComm_t in non-blocking mode. NCCL allows one thread at a time in it, and its end to come from any thread
// while it is at work: calls here are short and exclude each other, and the end runs on a thread of its own, because it
// waits for kernels that may in turn wait for those of other communicators.
#pragma once

#include <nccl.h>

#include <future>
#include <mutex>
#include <optional>
#include <thread>

namespace ds {

class NcclHandle {
 public:
  NcclHandle() = default;
  ~NcclHandle() { Close(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// call(ncclComm_t&), which must return soon. Nothing: the communicator was aborted.
  template <class Function>
  std::optional<ncclResult_t> Call(Function call) {
    std::lock_guard lock(mutex_);
    if (ended_) return std::nullopt;
    return call(comm_);
  }

  /// Whether it is ready, at work (ncclInProgress) or broken. Nothing: it was aborted.
  std::optional<ncclResult_t> State();

  /// Ends it and the kernels that wait in it. Returns at once. Any thread.
  void Abort() noexcept;

  /// Ends it in peace, unless it was aborted, and waits for the end. False: it did not end within 5 s, and is left
  /// behind with all that it uses. No call may follow.
  bool Close() noexcept;

 private:
  void End(ncclResult_t (*end)(ncclComm_t)) noexcept;

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  bool ended_ = false;
  std::thread end_;
  std::future<void> end_done_;  ///< of end_
};

}  // namespace ds
