#include "runtime/plan/planner.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/mesh/mesh.h"
#include "runtime/plan/check.h"
#include "runtime/plan/partition.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/price.h"
#include "runtime/plan/stages.h"

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
  ExchangeTied(layout, plan);
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

/// Of a rank of `stage`, whose other options are these.
PipelinePlace PlaceOf(const JobSpec& spec, const ModelLayout& layout, const PlanOptions& options, int stage,
                      const Machine& machine) {
  PipelinePlace place;
  place.stages = static_cast<int>(spec.parallel.pipeline);
  place.stage = stage;
  place.schedule = spec.parallel.schedule;
  place.virtual_stages = static_cast<int>(spec.parallel.virtual_stages);
  PlanOptions placed = options;
  placed.pipeline = place;
  const ScheduleShape shape = ShapeOf(placed);
  place.begin = CutSegments(layout, options, spec.parallel, shape.chunks(), machine);
  place.ties = spec.model.tied_head && shape.StageOf(0) != shape.StageOf(shape.chunks() - 1);
  return place;
}

}  // namespace

PlanOptions PlanOptionsOf(const JobSpec& spec, int rank, int world, DeviceKind device) {
  return PlanOptionsOf(spec, rank, world, device, DefaultMachine(device));
}

PlanOptions PlanOptionsOf(const JobSpec& spec, int rank, int world, DeviceKind device, const Machine& machine) {
  const Mesh mesh = MeshOf(spec.parallel, world);
  PlanOptions options;
  options.device = device;
  options.ranks = mesh.data_width();
  options.rank = mesh.data_rank(rank);
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
  if (mesh.extent(Axis::pipeline) > 1)
    options.pipeline = PlaceOf(spec, LayoutOf(spec, world), options, mesh.coordinate(rank, Axis::pipeline), machine);
  return options;
}

std::vector<Plan> BuildStagePlans(const ModelLayout& layout, const PlanOptions& options, const Machine& machine) {
  std::vector<Plan> plans;
  for (int stage = 0; stage < options.pipeline.stages; ++stage) {
    PlanOptions of_stage = options;
    of_stage.pipeline.stage = stage;
    plans.push_back(BuildPlan(layout, of_stage, machine));
  }
  if (plans.size() > 1) PriceTogether(layout, plans, machine);
  return plans;
}

ModelLayout LayoutOf(const JobSpec& spec, int world) {
  const int ranks = MeshOf(spec.parallel, world).data_width();
  const MicroBatchShape shape{spec.batch.micro_batch_size, spec.data.sequence_length};
  return BuildLayout(BuildSegments(spec.model, ComputeDType(spec.precision), shape, spec.data.reset_attention,
                                   spec.training.recompute, spec.training.fp8),
                     spec.zero, ranks);
}

}  // namespace ds
