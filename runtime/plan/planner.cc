#include "runtime/plan/planner.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/check.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/price.h"

namespace ds {

Plan BuildPlan(const ModelLayout& layout, const PlanOptions& options) {
  return BuildPlan(layout, options, DefaultMachine(options.device));
}

Plan BuildPlan(const ModelLayout& layout, const PlanOptions& options, const Machine& machine) {
  Plan plan;
  plan.options = options;
  OrderCompute(layout, plan);
  AddRecompute(layout, plan);
  PlaceState(layout, plan);
  GatherParameters(layout, plan);
  ReduceGradients(layout, plan);
  StepOptimizer(layout, plan);
  MoveActivations(plan);
  MoveState(layout, plan);
  PlaceArena(plan);
  if (HasPending(plan) && !options.updates_only) {
    const Plan updates = BuildPlan(layout, UpdatesOnly(options), machine);
    for (int t = 0; t < kTiers; ++t) plan.arena_bytes[t] = std::max(plan.arena_bytes[t], updates.arena_bytes[t]);
  }
  OrderStreams(plan);
  const std::vector<std::string> faults = CheckPlan(layout, plan);
  if (!faults.empty()) {
    std::string message = "the planner made a plan that its checker refuses (a defect of DeepShard, please report it):";
    for (const std::string& fault : faults) message += "\n  " + fault;
    throw RuntimeError(message);
  }
  plan.price = PriceOf(layout, plan, machine);
  return plan;
}

PlanOptions UpdatesOnly(PlanOptions options) {
  options.updates_only = true;
  return options;
}

DType ComputeDType(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
  }
  return DType::f32;
}

int MomentCount(const OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return 2;
    case OptimizerKind::lion:
    case OptimizerKind::adagrad:
      return 1;
    case OptimizerKind::sgd:
      return optimizer.momentum != 0 ? 1 : 0;
    case OptimizerKind::rmsprop:
      return optimizer.momentum != 0 ? 2 : 1;
  }
  return 2;
}

namespace {

/// What is still to be chosen (place.h) counts as kept on the device.
Tier TierOf(OffloadTarget target) {
  return target == OffloadTarget::cpu ? Tier::host : target == OffloadTarget::nvme ? Tier::file : Tier::device;
}

Placement PlacementOf(const JobSpec& spec) {
  Placement placement;
  placement.optimizer = placement.gradients = TierOf(spec.zero.offload_optimizer);
  placement.optimizer_ratio = spec.zero.offload_ratio;
  placement.parameters = TierOf(spec.zero.offload_param);
  placement.activations = TierOf(spec.memory.offload_activations);
  placement.steps_early =
      spec.gradient_clipping == 0 && spec.precision != Precision::fp16 && spec.training.on_nan == OnNan::stop;
  return placement;
}

}  // namespace

PlanOptions PlanOptionsOf(const JobSpec& spec, int rank, int ranks, DeviceKind device) {
  PlanOptions options;
  options.device = device;
  options.rank = rank;
  options.ranks = ranks;
  options.stage = spec.zero.stage;
  options.compute = ComputeDType(spec.precision);
  options.micro_batches = spec.batch.accumulation;
  options.recompute = spec.training.recompute;
  options.exact_sharding = spec.training.exact_sharding;
  options.deterministic = spec.training.deterministic;
  options.moments = MomentCount(spec.optimizer);
  options.placement = PlacementOf(spec);
  // Training does not go on after the last checkpoint, so a job that takes no other needs no copy.
  options.snapshot = spec.checkpoint.async && spec.checkpoint.every > 0 &&
                     spec.checkpoint.every < spec.training.steps &&
                     options.placement.optimizer != Tier::file;  // which memory is short of
  options.prefetch_bucket_size = spec.zero.prefetch_bucket_size;
  options.max_live_parameters = spec.zero.max_live_parameters;
  options.max_reuse_distance = spec.zero.max_reuse_distance;
  return options;
}

ModelLayout LayoutOf(const JobSpec& spec, int ranks) {
  const MicroBatchShape shape{spec.batch.micro_batch_size, spec.data.sequence_length};
  return BuildLayout(BuildSegments(spec.model, ComputeDType(spec.precision), shape, spec.data.reset_attention,
                                   spec.training.recompute, spec.training.fp8),
                     spec.zero, ranks);
}

}  // namespace ds
