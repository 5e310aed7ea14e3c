// The optimizer of a rank: steps the elements of a unit that the rank holds, run by run of equal weight decay.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/context.h"
#include "kernels/optimizer.h"
#include "runtime/optim/schedule.h"
#include "runtime/state/unit_tensor.h"

namespace ds {

/// The tensors that one step of one unit reads and writes. f32, but working: the compute dtype; and the gradient, which
/// on the host may be bf16 or f16. `working` is empty where it is the master itself (fp32).
struct UnitState {
  UnitTensor gradient, master, moment1, moment2, working;
};

/// The numbers of one step, computed once on the host: learning rate, decay, bias corrections. Of each kind of
/// optimizer, without and with weight decay.
struct StepScalars {
  AdamScalars adam[2];
  SgdScalars sgd[2];
  LionScalars lion[2];
  AdagradScalars adagrad[2];
  RmsPropScalars rmsprop[2];
};

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, const ModelLayout& layout, int rank);

  /// Has the pages of `state` go to the memory nodes of the threads that will step them (kernels/optimizer.h,
  /// PlaceStepMemory): before anything is written there. `whole` as in StepUnit.
  void PlaceUnit(int unit, bool whole, const UnitState& state) const;

  /// Computes the scalars of the step after `steps_done` optimizer steps. Not while a StepUnit runs.
  void BeginStep(const Rates& rates, int64_t steps_done);
  const StepScalars& scalars() const { return scalars_; }  ///< of the step begun last

  /// Steps `unit`: all of it (ZeRO-0), or the shard of this rank. `control`: what gradients are multiplied by
  /// (clipping, and the inverse of the loss scale; 1 when absent), and whether the step is skipped.
  void StepUnit(const KernelContext& context, const StepControl& control, int unit, bool whole,
                const UnitState& state) const;
  /// The same of this rank's piece of one bucket, by the scalars of this step or of an earlier one. Tensors of `state`
  /// may hold that piece alone.
  void StepBucket(const KernelContext& context, const StepScalars& scalars, const StepControl& control, int unit,
                  int bucket, const UnitState& state) const;
  /// Rounds the piece's master into its working copy, as a step does: where a step is skipped whose working copy goes
  /// to memory of its own.
  void RoundBucket(const KernelContext& context, int unit, int bucket, const UnitState& state) const;

 private:
  /// Elements of one unit with one weight decay, inside one range.
  struct Run {
    ShardRange range;
    int64_t begin = 0, count = 0;
    bool decay = false;
    int bucket = 0;  ///< of a shard's run: the index of its range
  };
  void AddRuns(const ParamUnit& unit, const std::vector<ShardRange>& ranges, std::vector<Run>& runs) const;
  void StepRun(const KernelContext& context, const StepScalars& scalars, const StepControl& control, const Run& run,
               const UnitState& state) const;

  OptimizerConfig config_;
  std::vector<std::vector<Run>> shard_runs_, whole_runs_;  ///< a unit
  StepScalars scalars_;
};

}  // namespace ds
