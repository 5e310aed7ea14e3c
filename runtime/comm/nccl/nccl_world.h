// What the NCCL communicators of one rank share: the rendezvous, and their end. The world has a connection of its own
// to every other rank (GlooGroup); over it a rank learns that another was lost, has failed or has left, which NCCL
// alone does not tell: a kernel that waits for a dead peer on the same machine waits for ever.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/gloo_group.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/comm/store.h"

namespace ds {

/// A communicator of the world, as far as its end goes.
class NcclMember {
 public:
  /// Ends the calls in progress. Returns a message that names the oldest of them and the reason; empty: there was none.
  /// Must not wait for the GPU, nor ask the world.
  virtual std::string Interrupt(const std::string& reason) noexcept = 0;

 protected:
  ~NcclMember() = default;
};

class NcclWorld {
 public:
  NcclWorld(const NcclOptions& options, Store& store) : options_(options), store_(store) {}

  const NcclOptions& options() const { return options_; }
  Store& store() const { return store_; }

  /// Connects to the other ranks, once: collective. Throws CommunicatorAborted.
  void Connect();
  /// A prefix in the store for the n-th communicator of this name.
  std::string Prefix(const std::string& name);

  /// Members are told of the world's failure from Add until Remove, which waits for what tells them. Add returns false,
  /// and does nothing, when the world has failed already.
  bool Add(NcclMember& member);
  void Remove(NcclMember& member);

  /// Breaks all members and the peers' worlds, once. Any thread.
  void Fail(const std::string& reason) noexcept;
  /// Set before any member is interrupted: a kernel that was ended looks like one that is done.
  bool failed() const { return failed_; }
  std::string reason() const;
  /// The message of the first member that was at work; empty: none was.
  std::string interrupted() const;
  /// Waits for a failure, and until all members were told: for those who see a consequence of it first.
  void AwaitFailure(std::chrono::milliseconds timeout);

  /// A rank among `ranks` that left the world some time ago, so that nothing of it is still on its way; -1: none.
  int Left(const std::vector<int>& ranks) const;

 private:
  void PeerLeft(int peer);

  const NcclOptions options_;
  Store& store_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> made_;
  std::vector<NcclMember*> members_;
  std::string reason_, interrupted_;
  std::atomic<bool> failed_{false};
  bool told_ = false;  ///< every member was interrupted
  std::atomic<bool> any_left_{false};
  std::map<int, std::chrono::steady_clock::time_point> left_;
  std::shared_ptr<GlooGroup> peers_;  ///< last: its thread uses all of the above
};

}  // namespace ds
