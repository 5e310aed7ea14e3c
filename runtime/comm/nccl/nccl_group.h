// One NCCL communicator of a rank, its stream, and the calls that are enqueued there and not done.
//
// In non-blocking mode NCCL enqueues a call's kernels on a thread of its own; Run waits until they are in the stream,
// so that what is enqueued next comes after them. It holds no lock meanwhile: with a full queue this can take until the
// stream moves, and a failure must be able to end that.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/nccl/comm_stream.h"
#include "runtime/comm/nccl/nccl_handle.h"
#include "runtime/comm/nccl/nccl_world.h"
#include "runtime/comm/operation.h"

namespace ds {

class NcclGroup final : private NcclMember {
 public:
  /// Enqueues a call; returns what NCCL returned.
  using Enqueue = std::function<ncclResult_t(ncclComm_t comm, cudaStream_t stream)>;

  /// Connects to the others: collective. `ranks`: those of the world, in the group's order; `prefix` is the same on all
  /// and used once in the store.
  NcclGroup(std::shared_ptr<NcclWorld> world, std::string name, std::vector<int> ranks, std::string prefix);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::string& prefix() const { return prefix_; }
  const std::vector<int>& ranks() const { return ranks_; }
  const std::shared_ptr<NcclWorld>& world() const { return world_; }
  const CommStream& stream() const { return stream_; }

  /// Enqueues a call, and returns once it is in the stream.
  void Run(const Operation& operation, const Enqueue& enqueue);

  /// Leaves a value for the others, and waits for one that the rank at `place` leaves.
  void Leave(const std::string& key, const std::string& value);
  std::string Await(const std::string& key, int place);

  /// Throws CommunicatorAborted when the world has failed; finds NCCL's asynchronous errors, and ranks that left though
  /// an enqueued call needs them. Any thread.
  void Check();
  void Abort(const std::string& reason) noexcept;

 private:
  struct Pending {
    uint32_t number;  ///< of the mark in the stream
    Operation operation;
  };

  std::string Interrupt(const std::string& reason) noexcept override;
  void Connect();
  ncclUniqueId UniqueId();
  /// The ranks that have not come, in words.
  std::string Absent();
  /// Waits until NCCL has done its part of a call on the host.
  void Settle(const std::string& what, ncclResult_t result);
  void CheckLeft();
  /// The oldest call that is not done, in words; empty: none is. The mutex is held.
  std::string Oldest();
  [[noreturn]] void ThrowBroken(const std::string& what, ncclResult_t result);
  /// Names the call that was interrupted, else `what`; where that is empty, the call that was interrupted elsewhere.
  [[noreturn]] void ThrowFailed(const std::string& what);

  const std::shared_ptr<NcclWorld> world_;
  const std::string name_, prefix_;
  const std::vector<int> ranks_;  ///< of the world
  const int rank_;                ///< place in ranks_

  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::string interrupted_;
  uint32_t calls_ = 0;
  std::atomic<bool> connected_{false};

  CommStream stream_;
  NcclHandle handle_;
};

}  // namespace ds
