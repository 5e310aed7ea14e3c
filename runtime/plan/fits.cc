// Refuses a job whose plan does not fit, with the numbers and with the nearest changes that would.
#include <algorithm>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/job/names.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

bool KeepsBelow(const Plan& plan) {
  const Placement& p = plan.options.placement;
  return p.optimizer != Tier::device || p.parameters != Tier::device || p.activations != Tier::device;
}

/// A CPU's device memory is its host's: both limits bound the sum of the two tiers. A GPU's is its own.
int64_t Needed(const Plan& plan) {
  const int64_t device = plan.price.peak_bytes[static_cast<int>(Tier::device)];
  const int64_t host = plan.price.peak_bytes[static_cast<int>(Tier::host)];
  return plan.options.device == DeviceKind::cpu ? device + host : device;
}

/// The tightest bound on a rank's memory, and whose it is.
struct Limit {
  int64_t bytes = INT64_MAX;
  std::string name;
};

/// Of what Needed() counts.
Limit TightestLimit(const JobSpec& spec, const Plan& plan, const TierRoom& room) {
  const DeviceKind device = plan.options.device;
  Limit limit;
  auto consider = [&](int64_t bytes, const char* name) {
    if (bytes < limit.bytes) limit = {bytes, name};
  };
  const bool shared = device == DeviceKind::cpu;
  const bool apart = shared && KeepsBelow(plan) && spec.memory.device_limit;  // each tier has its own limit
  if (spec.memory.device_limit && !apart) consider(*spec.memory.device_limit, "memory.device_limit");
  if (spec.memory.host_limit && shared && !apart) consider(*spec.memory.host_limit, "memory.host_limit");
  if (room.device > 0)
    consider(room.device, shared ? "the memory that the node has for a rank" : "the free memory of its GPU");
  return limit;
}

/// Of the host tier, where it is not a CPU's only memory.
Limit HostLimit(const JobSpec& spec, const Plan& plan, const TierRoom& room) {
  Limit limit;
  const bool gpu = plan.options.device == DeviceKind::cuda;
  if (!gpu && !KeepsBelow(plan)) return limit;
  // What a job says itself counts: what a node tells of its memory may be too little.
  if (spec.memory.host_limit)
    limit = {*spec.memory.host_limit, "memory.host_limit"};
  else if (gpu && room.host > 0)
    limit = {room.host, "the memory that the node has for a rank"};
  return limit;
}

/// A CPU stands for a device with memory of its own where a job offloads: the device's limit is of that tier alone.
Limit DeviceLimit(const JobSpec& spec, const Plan& plan) {
  if (plan.options.device == DeviceKind::cpu && KeepsBelow(plan) && spec.memory.device_limit)
    return {*spec.memory.device_limit, "memory.device_limit"};
  return {};
}

std::string Numbers(const Plan& plan, const Machine& machine) {
  const MemoryBreakdown m = BreakDown(plan, Tier::device, machine);
  std::string text;
  auto row = [&](const char* name, int64_t bytes) {
    if (bytes > 0) text += std::string("\n  ") + name + " " + FormatBytes(bytes);
  };
  row("parameters          ", m.working);
  row("fp32 master         ", m.master);
  row("optimizer moments   ", m.moments);
  row("gradients           ", m.gradients);
  row("activations         ", m.activations);
  row("gathered parameters ", m.gathered);
  row("gradients in flight ", m.reducing);
  row("state between tiers ", m.staging);
  row("gaps in the arena   ", m.gaps);
  row("libraries           ", m.libraries);
  row("kernels' workspace   ", plan.price.workspace_bytes);
  row("samples and sums     ", plan.price.executor_bytes);
  if (plan.options.device == DeviceKind::cpu) row("copy for checkpoints ", plan.price.snapshot_bytes);
  return text;
}

/// A job with some settings changed, and how to say so.
struct Change {
  std::string text;
  JobSpec spec;
};

Change WithStage(const JobSpec& spec, int stage) {
  Change change{"zero_optimization.stage: " + std::to_string(stage), spec};
  change.spec.zero.stage = stage;
  return change;
}

Change WithOptimizerOnHost(const JobSpec& spec) {
  Change change{"zero_optimization.offload_optimizer.device: cpu", spec};
  change.spec.zero.offload_optimizer = OffloadTarget::cpu;
  change.spec.zero.stage = std::max(1, spec.zero.stage);
  if (spec.zero.stage == 0) change.text += " with stage: 1";
  return change;
}

Change WithoutSnapshot(const JobSpec& spec) {
  Change change{"checkpoint.async: false", spec};
  change.spec.checkpoint.async = false;
  return change;
}

Change WithRecompute(const JobSpec& spec, RecomputeMode mode) {
  Change change{"training.recompute: " + NameOf(mode, kRecomputeNames), spec};
  change.spec.training.recompute = mode;
  return change;
}

Change WithMicroBatch(const JobSpec& spec, int64_t size) {
  Change change{"train_micro_batch_size_per_gpu: " + std::to_string(size), spec};
  change.spec.batch.accumulation = spec.batch.accumulation * spec.batch.micro_batch_size / size;
  change.spec.batch.micro_batch_size = size;
  return change;
}

/// The largest micro-batch below the job's which divides it.
int64_t SmallerMicroBatch(int64_t size) {
  for (int64_t n = size / 2; n > 0; --n)
    if (size % n == 0) return n;
  return 0;
}

/// So many stages of as many ranks in all, with the same batch.
Change WithStages(const JobSpec& spec, int64_t stages) {
  Change change{"parallel.pipeline: " + std::to_string(stages), spec};
  change.spec.batch.accumulation = spec.batch.accumulation * stages / spec.parallel.pipeline;
  change.spec.parallel.pipeline = stages;
  return change;
}

Change WithSchedule(const JobSpec& spec, ScheduleKind schedule) {
  Change change{"parallel.schedule: " + NameOf(schedule, kScheduleNames), spec};
  change.spec.parallel.schedule = schedule;
  change.spec.parallel.virtual_stages = 1;
  return change;
}

/// Plans the changed job; what its hungriest stage needs, when it fits.
std::optional<int64_t> Fits(const Change& change, const PlanOptions& options, int64_t limit, const Machine& machine) {
  const ModelLayout layout = LayoutOf(change.spec, options.world());
  const PlanOptions changed = PlanOptionsOf(change.spec, options.job_rank(), options.world(), options.device, machine);
  int64_t needed = 0;
  for (const Plan& plan : BuildStagePlans(layout, changed, machine)) needed = std::max(needed, Needed(plan));
  return needed <= limit ? std::optional(needed) : std::nullopt;
}

/// Other pipelines of the same ranks.
template <class F>
void AttemptPipelines(const JobSpec& spec, const PlanOptions& options, F attempt) {
  const bool more =
      spec.parallel.schedule == ScheduleKind::gpipe || spec.parallel.schedule == ScheduleKind::interleaved;
  if (options.pipeline.stages > 1 && more) attempt(WithSchedule(spec, ScheduleKind::one_f_one_b));
  const int64_t segments = 2 * spec.model.layers + 2, chunks = options.pipeline.virtual_stages;
  for (int64_t n = 2 * options.pipeline.stages; n <= options.world() && n * chunks <= segments; n *= 2)
    if (options.world() % n == 0 && attempt(WithStages(spec, n))) break;
}

/// The nearest single change of each kind that fits; when none does, all of them together.
std::vector<std::string> Remedies(const JobSpec& spec, const PlanOptions& options, int64_t limit,
                                  const Machine& machine) {
  std::vector<std::string> remedies;
  auto attempt = [&](const Change& change) {
    const std::optional<int64_t> needed = Fits(change, options, limit, machine);
    if (needed) remedies.push_back(change.text + " (needs " + FormatBytes(*needed) + ")");
    return needed.has_value();
  };
  if (options.ranks > 1)
    for (int stage = spec.zero.stage + 1; stage <= 3; ++stage)
      if (attempt(WithStage(spec, stage))) break;
  if (options.device == DeviceKind::cuda && spec.zero.offload_optimizer == OffloadTarget::none)
    attempt(WithOptimizerOnHost(spec));
  if (options.snapshot && options.device == DeviceKind::cpu) attempt(WithoutSnapshot(spec));
  for (RecomputeMode mode : {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full}) {
    if (mode <= spec.training.recompute) continue;
    if (mode == RecomputeMode::activation && spec.model.activation != Activation::swiglu) continue;  // keeps as much
    if (attempt(WithRecompute(spec, mode))) break;
  }
  for (int64_t n = SmallerMicroBatch(spec.batch.micro_batch_size); n > 0; n = SmallerMicroBatch(n))
    if (attempt(WithMicroBatch(spec, n))) break;
  AttemptPipelines(spec, options, attempt);
  if (!remedies.empty()) return remedies;

  Change all = WithRecompute(WithMicroBatch(spec, 1).spec, RecomputeMode::full);
  all.text = "train_micro_batch_size_per_gpu: 1 with training.recompute: full";
  if (options.snapshot && options.device == DeviceKind::cpu)
    all = {all.text + " and checkpoint.async: false", WithoutSnapshot(all.spec).spec};
  if (options.ranks > 1) {
    all = {all.text + " and zero_optimization.stage: 3", WithStage(all.spec, 3).spec};
  }
  attempt(all);
  return remedies;
}

void CheckHostFits(const Plan& plan, const Limit& limit) {
  const Price& price = plan.price;
  const int host = static_cast<int>(Tier::host);
  if (price.peak_bytes[host] <= limit.bytes) return;
  std::string message = "the plan does not fit: a rank needs " + FormatBytes(price.peak_bytes[host]) +
                        " of host memory, and " + limit.name + " is " + FormatBytes(limit.bytes) + ":";
  if (price.resident_bytes[host] > 0)
    message += "\n  state that is kept there " + FormatBytes(price.resident_bytes[host]);
  if (price.arena_bytes[host] > 0) message += "\n  what is on its way       " + FormatBytes(price.arena_bytes[host]);
  if (price.snapshot_bytes > 0) message += "\n  copy for checkpoints     " + FormatBytes(price.snapshot_bytes);
  message += limit.name == "memory.host_limit" ? "\nRaise it" : "\nUse more nodes";
  if (price.snapshot_bytes > 0) message += ", or set checkpoint.async: false";
  if (price.resident_bytes[host] > 0) message += ", or offload to nvme in place of cpu";
  throw UsageError(message);
}

void CheckDeviceFits(const Plan& plan, const Limit& limit, const Machine& machine) {
  const int64_t needed = plan.price.peak_bytes[static_cast<int>(Tier::device)];
  if (needed <= limit.bytes) return;
  throw UsageError("the plan does not fit: a rank needs " + FormatBytes(needed) + " of device memory, and " +
                   limit.name + " is " + FormatBytes(limit.bytes) + ". Beside what is offloaded:" +
                   Numbers(plan, machine) + "\nRaise the limit, offload more, or lower the micro-batch");
}

}  // namespace

std::string Excess(const JobSpec& spec, const Plan& plan, const TierRoom& room) {
  const auto over = [](int64_t needed, const char* memory, const Limit& limit) {
    return needed <= limit.bytes ? std::string()
                                 : "a rank needs " + FormatBytes(needed) + " of " + memory + ", and " + limit.name +
                                       " is " + FormatBytes(limit.bytes);
  };
  const int64_t* peak = plan.price.peak_bytes;
  std::string excess = over(peak[static_cast<int>(Tier::host)], "host memory", HostLimit(spec, plan, room));
  if (excess.empty()) excess = over(peak[static_cast<int>(Tier::device)], "device memory", DeviceLimit(spec, plan));
  if (excess.empty())
    excess = over(Needed(plan), plan.options.device == DeviceKind::cuda ? "its GPU's memory" : "memory",
                  TightestLimit(spec, plan, room));
  return excess;
}

void CheckFits(const JobSpec& spec, const ModelLayout& layout, const Plan& plan, const TierRoom& room) {
  CheckFits(spec, layout, plan, room, DefaultMachine(plan.options.device));
}

void CheckFits(const JobSpec& spec, const ModelLayout& layout, const Plan& plan, const TierRoom& room,
               const Machine& machine) {
  CheckHostFits(plan, HostLimit(spec, plan, room));
  CheckDeviceFits(plan, DeviceLimit(spec, plan), machine);
  const Limit limit = TightestLimit(spec, plan, room);
  const int64_t needed = Needed(plan);
  if (needed <= limit.bytes) return;
  const PipelinePlace& pipeline = plan.options.pipeline;
  std::string message = "the plan does not fit: a rank " +
                        (pipeline.stages > 1 ? "of stage " + std::to_string(pipeline.stage) + " " : std::string()) +
                        "needs " + FormatBytes(needed) + " and " + limit.name + " is " + FormatBytes(limit.bytes) +
                        ". Of a model of " + std::to_string(layout.ParameterCount()) + " parameters on " +
                        std::to_string(plan.options.world()) + " rank(s), ZeRO stage " +
                        std::to_string(plan.options.stage) + ":" + Numbers(plan, machine);
  const std::vector<std::string> remedies = Remedies(spec, plan.options, limit.bytes, machine);
  if (remedies.empty()) {
    message +=
        "\nNo ZeRO stage, recomputation or micro-batch fits: use more ranks, a smaller model or a shorter sequence";
  } else {
    message += "\nWhat would fit, one at a time:";
    for (const std::string& remedy : remedies) message += "\n  " + remedy;
  }
  throw UsageError(message);
}

}  // namespace ds
