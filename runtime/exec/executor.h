// Runs a plan: a loop over actions on three streams (compute on the calling thread, gather and reduce on a thread
// each).
//
// The first failure on any stream cancels the others, aborts this rank's communicators (so that peers end too), and
// leaves Run as an Error that names rank, step and action.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/exec/bind.h"
#include "runtime/exec/streams.h"
#include "runtime/exec/timeline.h"
#include "runtime/exec/watch.h"

namespace ds {

/// The communicators of a rank, one for each thread that uses any. All over the same ranks.
struct Communicators {
  std::unique_ptr<Communicator> gather, reduce, control;  ///< control: the compute stream and the training loop
  std::unique_ptr<Communicator> checkpoint;               ///< of the threads that write checkpoints; null: none do

  /// Collective.
  static Communicators Make(const CommunicatorFactory& factory, bool background_checkpoints = false);
  void Abort(const std::string& reason) noexcept;
};

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
  int64_t first_sample = 0;  ///< index in the global batch
};

struct StepInputs {
  StepContext context;  ///< first_sample is taken from the micro-batch
  std::vector<MicroBatch> micro_batches;
  bool stop = false;               ///< this rank was asked to stop
  bool checkpoint_failed = false;  ///< this rank's checkpoint in the background failed
  bool trace = false;
  /// Called once, in Norm: prepares the optimizer (Optimizer::BeginStep) and returns true, or false to skip the step.
  /// The same decision on every rank.
  std::function<bool(const StepSums&)> decide;
  Watch* watch = nullptr;  ///< what looks for numbers that are not finite; of this executor's plan
};

struct StepOutcome {
  StepSums sums;
  bool stepped = false;            ///< the optimizer stepped
  std::vector<double> local_loss;  ///< a micro-batch: the sum of this rank's losses
  Timeline timeline;
};

class Executor {
 public:
  /// Everything given outlives the executor. `optimizer` may be null for a forward-only plan.
  Executor(const BindContext& context, const std::vector<std::unique_ptr<Segment>>& segments,
           const Optimizer* optimizer, Communicators& communicators, int64_t attempt = 1);

  /// Runs the plan once. After an Error the executor is of no further use.
  StepOutcome Run(const StepInputs& inputs);

 private:
  struct Step;  // the state of one Run
  void RunStream(Step& step, StreamKind stream) noexcept;
  void RunAction(Step& step, BoundAction& bound, size_t index);
  void Compute(Step& step, BoundAction& bound);
  void Gather(Step& step, const BoundAction& bound);
  void Reduce(Step& step, const BoundAction& bound);
  void Norm(Step& step, const BoundAction& bound);
  void AddLocalFacts(const Step& step, double* facts) const;
  StepSums SumRanks() const;
  std::string NameOfFailpoint(const Step& step, size_t index) const;
  std::exception_ptr Explain(const Step& step, size_t index) const;

  const ModelLayout& layout_;
  const Plan& plan_;
  const std::vector<std::unique_ptr<Segment>>& segments_;
  const Optimizer* optimizer_;
  Communicators& communicators_;
  int64_t attempt_;
  std::vector<BoundAction> actions_;
  std::vector<size_t> of_stream_[3];
  EventTable events_;
  FirstFailure failure_;
  std::vector<double> norm_send_, norm_receive_;
  std::unique_ptr<StreamThread> threads_[3];  // compute has none
};

}  // namespace ds
