// Runs a plan: the interface, what a step is given and what it tells. HostExecutor (host_executor.h) runs it with
// threads, GpuExecutor (gpu_executor.h) enqueues it on a GPU.
//
// The first failure aborts this rank's communicators (so that peers end too) and leaves Run as an Error that names
// rank, step and action.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/bind.h"
#include "runtime/exec/pending_update.h"
#include "runtime/exec/timeline.h"
#include "runtime/exec/watch.h"

namespace ds {

/// The communicators of a rank, one for each stream or thread that uses any. Over all ranks, but where it says so.
struct Communicators {
  std::unique_ptr<Communicator> gather, reduce;  ///< of the tensors' device; over the ranks of one pipeline stage
  std::unique_ptr<Communicator> control;     ///< of host memory: the training loop, on the CPU the compute stream too
  std::unique_ptr<Communicator> sums;        ///< of a GPU's compute stream; null on the CPU
  std::unique_ptr<Communicator> checkpoint;  ///< of the threads that write checkpoints; null: none do
  /// Of Send and Receive, by StreamKind: over this rank and the one at the other end, of the tensors' device. Null
  /// where the stage sends and receives nothing on that stream.
  std::array<std::unique_ptr<Communicator>, kStreams> messages;

  /// Collective. `options`: of this rank's plan. `device`: makes those that move a GPU's memory; empty: there is no
  /// GPU.
  static Communicators Make(const CommunicatorFactory& host, const PlanOptions& options,
                            const CommunicatorFactory& device = {});
  void Abort(const std::string& reason) noexcept;
};

/// Sends or receives what a Send or Receive action carries. Returns the bytes that this rank sent.
int64_t PassMessage(Communicators& communicators, const BoundAction& bound);

/// What the Norm action learnt, the same on every rank.
struct StepSums {
  double loss = 0;  ///< sum over the tokens of the global batch: micro-batches in order, then ranks in order
  std::vector<double> rank_loss;   ///< a rank's part of it
  double squares = 0;              ///< of every element of the reduced gradient, still times the loss scale
  bool stop = false;               ///< some rank was asked to stop
  bool checkpoint_failed = false;  ///< some rank could not write its part of a checkpoint
  /// The first loss that is not finite: rank, then micro-batch. -1: all are.
  int bad_loss_rank = -1, bad_loss_micro_batch = -1;
  /// A gradient that is not finite: the last such unit in model order (the first that the backward pass reached), and
  /// the rank that owns the part. -1: all are.
  int bad_unit = -1, bad_rank = -1;
};

struct MicroBatch {
  Tensor tokens, targets;    ///< [B, T] i32
  Tensor first_key;          ///< [B, T] i32 where attention stays within documents
  int64_t first_sample = 0;  ///< index in the global batch
};

struct StepInputs {
  StepContext context;  ///< first_sample is taken from the micro-batch
  std::vector<MicroBatch> micro_batches;
  bool stop = false;               ///< this rank was asked to stop
  bool checkpoint_failed = false;  ///< this rank's checkpoint in the background failed
  bool trace = false;
  double clip = 0;  ///< largest norm of the gradient, without the loss scale; 0: any
  /// Called once, with what Norm learnt: returns what gradients are multiplied by (clipping, and the inverse of the
  /// loss scale), or nullopt to skip the step. The same decision on every rank. The optimizer is prepared already
  /// (Optimizer::BeginStep). On a GPU the device has decided by the same rule (kernels/step_decision.h) when it is
  /// called, after the step. Empty: the step is skipped whatever it learns.
  std::function<std::optional<double>(const StepSums&)> decide;
  Watch* watch = nullptr;  ///< what looks for numbers that are not finite; of this executor's plan
};

struct StepOutcome {
  StepSums sums;
  bool stepped = false;            ///< the optimizer stepped, or left what is pending to the next step
  std::vector<double> local_loss;  ///< a micro-batch: the sum of this rank's losses
  Timeline timeline;
};

class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs the plan once: first what is pending, which is done then; what this step leaves is pending after it. After an
  /// Error the executor is of no further use.
  virtual StepOutcome Run(const StepInputs& inputs) = 0;
};

/// What an executor needs of a rank; everything outlives it.
struct ExecutorContext {
  BindContext bind;
  const std::vector<std::unique_ptr<Segment>>& segments;
  const Optimizer* optimizer = nullptr;  ///< may be null for a forward-only plan
  Communicators& communicators;
  int64_t attempt = 1;
  Gpu* gpu = nullptr;         ///< where the tensors are; null: on the host
  FileTier* files = nullptr;  ///< where the plan's file tier is; null: it has none
  /// A GPU's kernels share it: memory of the device, u8 (kernels/workspace.h).
  Tensor workspace;
  PendingUpdate* pending = nullptr;  ///< what a run leaves to the next; null: the plan has no pending actions
};

std::unique_ptr<Executor> MakeExecutor(const ExecutorContext& context);

}  // namespace ds
