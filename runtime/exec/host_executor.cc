#include "runtime/exec/host_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "runtime/base/activity.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/exec/action_names.h"
#include "runtime/exec/reduce_bucket.h"
#include "runtime/exec/step_facts.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

static_assert(kStreams <= kActivityStreams, "activities are kept by stream");

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

int Index(StreamKind stream) { return static_cast<int>(stream); }
int Index(ActionKind kind) { return static_cast<int>(kind); }

}  // namespace

/// Timelines are kept apart by stream while they run, so that threads share nothing but events.
struct HostExecutor::Step {
  const StepInputs& inputs;
  StepOutcome& outcome;
  Clock::time_point begin;
  Timeline of_stream[kStreams];
};

HostExecutor::HostExecutor(const ExecutorContext& context)
    : layout_(context.bind.layout),
      plan_(context.bind.plan),
      segments_(context.segments),
      optimizer_(context.optimizer),
      communicators_(context.communicators),
      attempt_(context.attempt),
      actions_(Bind(context.bind)),
      events_(context.bind.plan.actions.size()),
      host_work_(plan_, optimizer_, context.files, context.pending),
      owned_(PartsOf(layout_, plan_.options).owned) {
  for (size_t i = 0; i < actions_.size(); ++i) of_stream_[Index(actions_[i].action->stream)].push_back(i);
  for (int stream = 0; stream < kStreams; ++stream) {
    if (of_stream_[stream].empty()) continue;
    if (stream != Index(StreamKind::compute)) threads_[stream] = std::make_unique<StreamThread>();
  }
}

StepOutcome HostExecutor::Run(const StepInputs& inputs) {
  StepOutcome outcome;
  outcome.local_loss.assign(inputs.micro_batches.size(), 0.0);
  RequireMicroBatches(inputs, plan_.options);
  events_.Reset();
  const RunningPlan running([this](size_t index) { return Describe(layout_, plan_, index); });
  Step step{inputs, outcome, Clock::now(), {}};
  host_work_.Begin(!inputs.decide);
  for (int stream = 0; stream < kStreams; ++stream)
    if (threads_[stream])
      threads_[stream]->Start([this, &step, stream] { RunStream(step, static_cast<StreamKind>(stream)); });
  RunStream(step, StreamKind::compute);

  const Clock::time_point compute_done = Clock::now();
  for (auto& thread : threads_)
    if (thread) thread->Join();
  failure_.Rethrow();
  host_work_.End(outcome.stepped, gradient_scale_);

  const Clock::time_point end = Clock::now();
  Timeline& total = outcome.timeline;
  for (Timeline& part : step.of_stream) {
    for (int kind = 0; kind < kActionKinds; ++kind) {
      total.seconds[kind] += part.seconds[kind];
      total.bytes[kind] += part.bytes[kind];
    }
    total.compute_seconds += part.compute_seconds;
    total.exposed_comm_seconds += part.exposed_comm_seconds;
    total.spans.insert(total.spans.end(), part.spans.begin(), part.spans.end());
  }
  total.exposed_comm_seconds += Seconds(end - compute_done);
  total.total_seconds = Seconds(end - step.begin);
  return outcome;
}

void HostExecutor::RunStream(Step& step, StreamKind stream) noexcept {
  SetFailpointScope(plan_.options.job_rank(), attempt_);
  Timeline& timeline = step.of_stream[Index(stream)];
  // The compute stream has the cores.
  const KernelContext kernel = stream == StreamKind::compute ? step.inputs.context.kernel : KernelContext();
  for (size_t index : of_stream_[Index(stream)]) {
    BoundAction& bound = actions_[index];
    try {
      const Clock::time_point asked = Clock::now();
      for (int earlier : bound.action->waits) events_.Wait(static_cast<size_t>(earlier));
      const RunningAction running(Index(stream), index);
      const Clock::time_point begin = Clock::now();
      if (stream == StreamKind::compute && !bound.action->waits.empty())
        timeline.exposed_comm_seconds += Seconds(begin - asked);
      if (FailpointsSet()) Failpoint(FailpointOf(layout_, plan_, step.inputs.context.step, index));
      if (step.inputs.watch) step.inputs.watch->Before(kernel, bound, static_cast<int>(index));
      RunAction(step, bound, index);
      if (FailpointsSet())
        if (const auto number = FailpointNumber(FailpointOf(layout_, plan_, step.inputs.context.step, index)))
          Spoil({}, nullptr, layout_, plan_, bound, *number);
      if (step.inputs.watch) step.inputs.watch->After(kernel, bound, static_cast<int>(index));
      const Clock::time_point end = Clock::now();
      timeline.seconds[Index(bound.action->kind)] += Seconds(end - begin);
      // Norm tells its collective apart from its sums by itself.
      if (stream == StreamKind::compute && bound.action->kind != ActionKind::norm)
        timeline.compute_seconds += Seconds(end - begin);
      if (step.inputs.trace)
        timeline.spans.push_back(Span{static_cast<int>(index), Seconds(begin - step.begin), Seconds(end - step.begin)});
    } catch (const StreamCancelled&) {
      return;
    } catch (...) {
      if (failure_.Set(Explain(layout_, plan_, step.inputs.context.step, index))) {
        events_.Cancel();
        communicators_.Abort("rank " + std::to_string(plan_.options.job_rank()) + " failed in " +
                             Describe(layout_, plan_, index));
      }
      return;
    }
    if (!bound.action->signals) continue;
    // The stream that wakes may take this core at once: that is its time, not the executor's.
    const Clock::time_point woken = Clock::now();
    events_.Signal(index);
    if (stream == StreamKind::compute) timeline.exposed_comm_seconds += Seconds(Clock::now() - woken);
  }
}

void HostExecutor::RunAction(Step& step, BoundAction& bound, size_t index) {
  const KernelContext& kernel = step.inputs.context.kernel;
  if (host_work_.LeavesOut(*bound.action)) return;
  switch (bound.action->kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return Compute(step, bound);
    case ActionKind::gather:
      return Gather(step, bound);
    case ActionKind::reduce:
      return Reduce(step, bound);
    case ActionKind::release:
      return;  // the arena's plan gives the memory to others
    case ActionKind::sum_tied:
      for (auto& [first, second] : bound.sums) Add(kernel, first, second, first);
      return;
    case ActionKind::norm:
      return Norm(step, bound);
    case ActionKind::send:
    case ActionKind::receive:
      step.of_stream[Index(bound.action->stream)].bytes[Index(bound.action->kind)] +=
          PassMessage(communicators_, bound);
      return;
    case ActionKind::fetch:
    case ActionKind::store:
      return Move(step, bound);
    case ActionKind::squares:
      return host_work_.Squares({}, bound);
    case ActionKind::optimizer_step:
      if (bound.action->stream == StreamKind::host) return host_work_.StepBucket({}, bound);
      if (bound.action->bucket >= 0) return StepBucket(step, bound);
      if (step.outcome.stepped)
        optimizer_->StepUnit(kernel, {&gradient_scale_}, bound.action->unit, bound.step_whole, bound.state);
      return;
  }
  throw RuntimeError("action " + std::to_string(index) + " is of no known kind");
}

void HostExecutor::Move(Step& step, const BoundAction& bound) {
  const Tensor &from = bound.from.memory, &to = bound.to.memory;
  if (from && to)
    std::memcpy(to.data, from.data, static_cast<size_t>(bound.action->bytes));
  else
    host_work_.MoveFile(bound);
  step.of_stream[Index(bound.action->stream)].bytes[Index(bound.action->kind)] += bound.action->bytes;
}

/// The device's: a bucket that is not stepped is rounded again, since its working copy may be in memory of its own.
void HostExecutor::StepBucket(Step& step, const BoundAction& bound) {
  const KernelContext& kernel = step.inputs.context.kernel;
  const Action& action = *bound.action;
  if (step.outcome.stepped)
    optimizer_->StepBucket(kernel, optimizer_->scalars(), {&gradient_scale_}, action.unit, action.bucket, bound.state);
  else
    optimizer_->RoundBucket(kernel, action.unit, action.bucket, bound.state);
}

void HostExecutor::Compute(Step& step, BoundAction& bound) {
  const Action& action = *bound.action;
  const MicroBatch& micro_batch = step.inputs.micro_batches[action.micro_batch];
  const Segment& segment = *segments_[action.segment];
  StepContext context = step.inputs.context;
  context.first_sample = micro_batch.first_sample;
  bound.io.tokens = micro_batch.tokens;
  bound.io.targets = micro_batch.targets;
  bound.io.first_key = micro_batch.first_key;
  switch (action.kind) {
    case ActionKind::forward:
      bound.io.loss_sum = &step.outcome.local_loss[action.micro_batch];
      segment.Forward(context, bound.io);
      return;
    case ActionKind::recompute:
      return segment.Recompute(context, bound.io);
    case ActionKind::backward_input:
      return segment.BackwardInput(context, bound.io);
    default:
      break;
  }
  for (const Tensor& gap : bound.clear) std::memset(gap.data, 0, static_cast<size_t>(gap.bytes()));
  segment.BackwardWeight(context, bound.io);
}

void HostExecutor::Gather(Step& step, const BoundAction& bound) {
  communicators_.gather->AllGather(bound.shard, bound.whole);
  const int64_t others = plan_.options.ranks - 1;
  step.of_stream[Index(StreamKind::gather)].bytes[Index(ActionKind::gather)] += bound.shard.bytes() * others;
}

void HostExecutor::Reduce(Step& step, const BoundAction& bound) {
  const KernelContext single;  // the compute stream has the cores
  step.of_stream[Index(StreamKind::reduce)].bytes[Index(ActionKind::reduce)] += ReduceBucket(
      single, communicators_.reduce.get(), plan_.options.ranks, bound,
      [](const Tensor& from, const Tensor& to) { std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes())); });
}

// One small all-gather carries all that the ranks must agree on.
void HostExecutor::Norm(Step& step, const BoundAction& bound) {
  Timeline& timeline = step.of_stream[Index(StreamKind::compute)];
  const Clock::time_point begin = Clock::now();
  const size_t units = layout_.units.size(), width = units + kNormFacts,
               ranks = static_cast<size_t>(plan_.options.world());
  norm_send_.assign(width, 0.0);
  norm_receive_.assign(width * ranks, 0.0);
  for (const UnitGradient& unit : bound.gradients)
    for (const ShardRange& range : layout_.ShardRanges(unit.unit, plan_.options.rank))
      norm_send_[unit.unit] += SumOfSquares(step.inputs.context.kernel, unit.gradient.Part(range));
  if (bound.squares)
    for (size_t unit = 0; unit < units; ++unit)
      if (owned_[unit]) norm_send_[unit] += bound.squares.as<double>()[unit];
  std::vector<double>& losses = step.outcome.local_loss;
  WriteStepFacts({}, Tensor::Of(losses.data(), Shape{static_cast<int64_t>(losses.size())}), NoticesOf(step.inputs),
                 Tensor::Of(&norm_send_[units], Shape{kNormFacts}));

  const Clock::time_point sent = Clock::now();
  communicators_.control->AllGather(Tensor::Of(norm_send_.data(), Shape{static_cast<int64_t>(width)}),
                                    Tensor::Of(norm_receive_.data(), Shape{static_cast<int64_t>(width * ranks)}));
  const Clock::time_point received = Clock::now();

  step.outcome.sums = SumRanks(norm_receive_, units, plan_.options.world());
  const std::optional<double> gradient_scale =
      step.inputs.decide ? step.inputs.decide(step.outcome.sums) : std::nullopt;
  step.outcome.stepped = gradient_scale.has_value();
  gradient_scale_ = static_cast<float>(gradient_scale.value_or(0));

  timeline.exposed_comm_seconds += Seconds(received - sent);
  timeline.compute_seconds += Seconds(sent - begin) + Seconds(Clock::now() - received);
  timeline.bytes[Index(ActionKind::norm)] += static_cast<int64_t>(width * sizeof(double)) * (plan_.options.world() - 1);
}

}  // namespace ds
