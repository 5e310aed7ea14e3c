// Collectives among the ranks of one group. Backends: threads of one process, Gloo between CPU processes; NCCL between
// GPUs (nccl/nccl_communicator.h says where it differs).
//
// A communicator belongs to one stream of a plan and is used by one thread at a time; all its ranks must issue the
// same operations in the same order. Calls block until the local rank's part is done, unless the communicator has a
// CUDA stream: then they enqueue their work there and return, and tensors are theirs until the stream has come past it.
// Reductions add contributions in rank order (kernels/reduce.h, SumInOrder), so every backend in host memory gives the
// same bits.
//
// Any call throws CommunicatorAborted after Abort() of any rank, or when a peer is lost or the time-out passes: the
// message names the operation and the peer. Ranks that ask for different things (another operation, size or dtype) get
// a RuntimeError that names both. After either the communicator is of no further use. Wrong extents, which the caller
// alone can see, are std::invalid_argument and leave the group whole.
//
// Destroying a communicator leaves the group: calls of others that need this rank fail, others go on.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "kernels/tensor.h"
#include "runtime/base/error.h"
#include "runtime/comm/store.h"

namespace ds {

/// A collective could not finish because the group broke: usually a victim of another rank's failure, never the cause.
class CommunicatorAborted : public RuntimeError {
 public:
  using RuntimeError::RuntimeError;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The cudaStream_t that calls enqueue their work on; null: calls block.
  virtual void* stream() const { return nullptr; }

  /// whole = the shards of ranks 0, 1, ... one after another; whole.numel() == size() * shard.numel(). `shard` may be
  /// this rank's place inside `whole`.
  virtual void AllGather(Tensor shard, Tensor whole) = 0;

  /// shard = sum over ranks, in rank order, of their r-th piece of `whole` (r: this rank). f32, f64, bf16, f16.
  /// `workspace`: ReduceScatterWorkspace(bytes of whole, size()) bytes, unused where there is a stream(). `shard` must
  /// not overlap `whole`.
  virtual void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) = 0;

  /// Piece p of `send` goes to rank p; piece p of `receive` comes from rank p. Equal pieces. No overlap.
  virtual void AllToAll(Tensor send, Tensor receive) = 0;

  virtual void Broadcast(Tensor tensor, int root) = 0;
  virtual void Send(Tensor tensor, int peer) = 0;
  virtual void Receive(Tensor tensor, int peer) = 0;
  virtual void Barrier() = 0;

  /// Ranks that pass the same color form a new group, ordered by (key, rank). Collective. Abort of one group does not
  /// abort the other.
  virtual std::unique_ptr<Communicator> Split(int color, int key) = 0;

  /// Ends every call in progress on every reachable rank with CommunicatorAborted. Any thread; never throws.
  virtual void Abort(const std::string& reason) noexcept = 0;

  /// Throws, as the next call would, when the group is broken; names the enqueued call that this kept from its end. For
  /// those who wait for stream(). Any thread.
  virtual void CheckAsync() {}
};

/// Bytes of workspace that ReduceScatter of a `whole` of that many bytes needs.
inline int64_t ReduceScatterWorkspace(int64_t whole_bytes, int size) { return size > 1 ? whole_bytes : 0; }

/// Makes the communicator of this rank for one stream ("gather", "reduce", "control", ...); collective over all ranks.
using CommunicatorFactory = std::function<std::unique_ptr<Communicator>(const std::string& stream)>;

/// A group of `size` ranks that are threads of this process. Each rank's thread asks the world for its communicators.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size, std::chrono::milliseconds timeout = std::chrono::minutes(10));
  ~ThreadWorld();
  std::unique_ptr<Communicator> Make(int rank, const std::string& stream);
  CommunicatorFactory Factory(int rank);
  /// Aborts every communicator made so far and later.
  void Abort(const std::string& reason) noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

struct GlooOptions {
  int rank = 0, size = 1;
  std::string interface_address = "127.0.0.1";  ///< the local address that data connections bind
  std::chrono::milliseconds timeout{600'000};
};

/// A factory of Gloo communicators over TCP whose rendezvous goes through `store` (kept alive by the caller). Ignores
/// SIGPIPE in this process where it has no handler: a broken connection must be an error.
CommunicatorFactory GlooFactory(const GlooOptions& options, Store& store);

/// A group of one.
CommunicatorFactory SingleRankFactory();

}  // namespace ds
