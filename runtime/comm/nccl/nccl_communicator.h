// Communicators among GPUs, over NCCL. One process drives one GPU (or one thread, in tests).
//
// Where they differ from the contract of communicator.h:
// - Tensors are on the communicator's GPU. A call enqueues its work on stream(), a non-blocking CUDA stream of the
//   communicator's own, and returns; it may wait for peers the first time that a connection is used. Who waits for the
//   stream uses WaitForEvent (wait.h), which ends when the group breaks.
// - Several communicators of one process may be at work at once. The host must then issue their calls in one order on
//   all ranks: on each GPU kernels of all of them must fit beside each other, or begin in the order of the calls.
// - ReduceScatter adds in the order of NCCL's rings: with `pinned`, a function of the ranks' places, the number of
//   elements and the channels, the same in every run. 16-bit sums are rounded at each addition.
// - What different ranks ask for is not compared.
// - A factory's communicators, and those that came of Split, break together: when one of them fails or is aborted, when
//   a rank is lost, or when a peer's break. Every call and CheckAsync then throws CommunicatorAborted, and kernels that
//   wait for a peer are ended. A rank's connections to all others (over TCP, on the interface's address) tell it.
// - Destroying a communicator gives its enqueued calls 5 s to end, then ends them.
// - Split waits for the stream; colors must not be negative.
#pragma once

#include <chrono>
#include <string>

#include "runtime/comm/communicator.h"

namespace ds {

struct NcclOptions {
  int rank = 0, size = 1;
  /// CUDA's index of this rank's GPU, which becomes the current one of threads that make communicators.
  int device = 0;
  std::string interface_address = "127.0.0.1";  ///< the local address whose network interface carries data
  /// Longest time to connect; communicators are made, and first calls connect, within it.
  std::chrono::milliseconds timeout{600'000};
  bool pinned = true;  ///< algorithm and protocol are fixed (nccl_environment.h)
  int channels = 16;   ///< of each communicator: the streaming multiprocessors that it takes, at most 32
};

/// A factory of NCCL communicators whose rendezvous goes through `store` (kept alive by the caller). The first factory
/// of a process sets NCCL's environment (nccl_environment.h) and logs it. Making a communicator throws
/// CommunicatorAborted when a peer does not come within `timeout`; the message names it.
///
/// Weak: null in programs that do not link ds_gpu_runtime, so that others choose at run time.
[[gnu::weak]] CommunicatorFactory NcclFactory(const NcclOptions& options, Store& store);

}  // namespace ds
