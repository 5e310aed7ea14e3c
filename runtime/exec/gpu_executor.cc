#include "runtime/exec/gpu_executor.h"

#include <algorithm>
#include <chrono>
#include <thread>

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

int Index(StreamKind stream) { return static_cast<int>(stream); }
int Index(ActionKind kind) { return static_cast<int>(kind); }

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

struct GpuExecutor::Step {
  const StepInputs& inputs;
  StepOutcome& outcome;
  Clock::time_point begin;
  size_t stamps = 0;  ///< taken
  void *first = nullptr, *compute_done = nullptr, *last = nullptr;
  std::vector<Mark> exposed = {};                     ///< the compute stream waited for others
  std::vector<std::pair<size_t, Mark>> actions = {};  ///< of a traced step
};

GpuExecutor::GpuExecutor(const ExecutorContext& context)
    : layout_(context.bind.layout),
      plan_(context.bind.plan),
      segments_(context.segments),
      optimizer_(context.optimizer),
      communicators_(context.communicators),
      attempt_(context.attempt),
      gpu_(*context.gpu),
      workspace_(context.workspace),
      actions_(Bind(context.bind)),
      done_(context.bind.plan.actions.size()),
      memory_(context.bind.layout, context.bind.plan, context.bind.shape, *context.gpu) {
  owned_ = PartsOf(layout_, plan_.options).owned;
  const Communicator* of_stream[kStreams] = {communicators_.sums.get(), communicators_.gather.get(),
                                             communicators_.reduce.get()};
  gpu_streams_ = {StreamKind::compute, StreamKind::gather, StreamKind::reduce, StreamKind::fetch, StreamKind::store};
  for (StreamKind kind : MessageStreamsOf(plan_.options)) {
    of_stream[Index(kind)] = communicators_.messages[static_cast<size_t>(kind)].get();
    gpu_streams_.push_back(kind);
  }
  for (StreamKind kind : gpu_streams_) {
    const Communicator* communicator = of_stream[Index(kind)];
    streams_[Index(kind)] = communicator ? communicator->stream() : nullptr;
    if (!streams_[Index(kind)]) {
      own_streams_[Index(kind)] = GpuStream(gpu_);
      streams_[Index(kind)] = own_streams_[Index(kind)].get();
    }
    finished_[Index(kind)] = GpuEvent(gpu_, false);
  }
  for (size_t i = 0; i < actions_.size(); ++i) {
    if (actions_[i].action->signals && TierStreams::OnGpu(actions_[i].action->stream)) done_[i] = GpuEvent(gpu_, false);
    names_.push_back(Describe(layout_, plan_, i));
  }
  tiers_ = std::make_unique<TierStreams>(context, actions_, done_, streams_);
}

StepOutcome GpuExecutor::Run(const StepInputs& inputs) {
  StepOutcome outcome;
  RequireMicroBatches(inputs, plan_.options);
  SetFailpointScope(plan_.options.job_rank(), attempt_);
  const RunningPlan running([this](size_t action) { return names_[action]; });
  Step step{inputs, outcome, Clock::now()};
  size_t index = 0;
  try {
    step.first = Stamp(step, StreamKind::compute);
    memory_.Upload(inputs.micro_batches, StreamOf(StreamKind::compute));
    // The other streams begin behind what the compute stream has, as they do behind the step before.
    gpu_.Record(finished_[Index(StreamKind::compute)].get(), StreamOf(StreamKind::compute));
    for (StreamKind kind : gpu_streams_)
      if (kind != StreamKind::compute) gpu_.Wait(StreamOf(kind), finished_[Index(StreamKind::compute)].get());
    tiers_->Begin(inputs, step.begin);
    for (; index < actions_.size(); ++index)
      if (!TierStreams::Runs(actions_[index].action->stream)) Enqueue(step, index);
    index = actions_.size() - 1;  // what fails from here on is named by the last
    FinishStep(step);
  } catch (const StreamCancelled&) {
    tiers_->Cancel();  // throws
    throw RuntimeError("a stream was cancelled, and nothing failed");
  } catch (...) {
    const std::exception_ptr error = Explain(layout_, plan_, inputs.context.step, index);
    communicators_.Abort("rank " + std::to_string(plan_.options.job_rank()) + " failed in " +
                         Describe(layout_, plan_, index));
    tiers_->Cancel();
    std::rethrow_exception(error);
  }
  AddTimes(step);
  return outcome;
}

KernelContext GpuExecutor::KernelOn(const Step& step, StreamKind stream) const {
  KernelContext kernel = step.inputs.context.kernel;
  kernel.stream = StreamOf(stream);
  if (stream == StreamKind::compute) {  // one workspace, so one stream
    kernel.workspace = workspace_.data;
    kernel.workspace_bytes = workspace_.bytes();
  }
  return kernel;
}

void* GpuExecutor::Stamp(Step& step, StreamKind stream) {
  if (step.stamps == stamps_.size()) stamps_.emplace_back(gpu_, true);
  void* const event = stamps_[step.stamps++].get();
  gpu_.Record(event, StreamOf(stream));
  return event;
}

void GpuExecutor::Enqueue(Step& step, size_t index) {
  BoundAction& bound = actions_[index];
  const Action& action = *bound.action;
  const StreamKind stream = action.stream;
  const RunningAction running(Index(stream), index);
  const KernelContext kernel = KernelOn(step, stream);
  const std::string failpoint = FailpointsSet() ? FailpointOf(layout_, plan_, step.inputs.context.step, index) : "";

  const auto wait_for_earlier = [&] {
    for (int wanted : action.waits) {
      const size_t earlier = static_cast<size_t>(wanted);
      const StreamKind of = actions_[earlier].action->stream;
      if (TierStreams::Runs(of)) tiers_->Await(earlier, [this] { CheckCommunicators(); });
      if (TierStreams::OnGpu(of)) gpu_.Wait(StreamOf(stream), done_[earlier].get());
    }
  };
  if (stream == StreamKind::compute && !action.waits.empty()) {
    Mark wait;
    wait.begin = Stamp(step, stream);
    wait_for_earlier();
    wait.end = Stamp(step, stream);
    step.exposed.push_back(wait);
  } else {
    wait_for_earlier();
  }
  if (!failpoint.empty()) Failpoint(failpoint);
  if (step.inputs.watch) step.inputs.watch->Before(kernel, bound, static_cast<int>(index));
  Mark span{};
  gpu_.BeginRange(names_[index].c_str());
  if (step.inputs.trace) span.begin = Stamp(step, stream);
  RunAction(step, bound, kernel);
  if (step.inputs.trace) {
    span.end = Stamp(step, stream);
    step.actions.emplace_back(index, span);
  }
  gpu_.EndRange();
  if (!failpoint.empty())
    if (const auto number = FailpointNumber(failpoint)) Spoil(kernel, &gpu_, layout_, plan_, bound, *number);
  if (step.inputs.watch) step.inputs.watch->After(kernel, bound, static_cast<int>(index));
  if (action.signals) gpu_.Record(done_[index].get(), StreamOf(stream));
  if (tiers_->any()) tiers_->Enqueued(index);
}

void GpuExecutor::RunAction(Step& step, BoundAction& bound, const KernelContext& kernel) {
  Timeline& timeline = step.outcome.timeline;
  if (tiers_->LeavesOut(*bound.action)) return;
  switch (bound.action->kind) {
    case ActionKind::forward:
    case ActionKind::recompute:
    case ActionKind::backward_input:
    case ActionKind::backward_weight:
      return Compute(step, bound, kernel);
    case ActionKind::gather:
      if (plan_.options.ranks == 1)  // whose communicators move host memory
        return CopyTensor(bound.shard, bound.whole, kernel.stream);
      communicators_.gather->AllGather(bound.shard, bound.whole);
      timeline.bytes[Index(ActionKind::gather)] += bound.shard.bytes() * (plan_.options.ranks - 1);
      return;
    case ActionKind::reduce:
      timeline.bytes[Index(ActionKind::reduce)] +=
          ReduceBucket(kernel, communicators_.reduce.get(), plan_.options.ranks, bound,
                       [&](const Tensor& from, const Tensor& to) { CopyTensor(from, to, kernel.stream); });
      return;
    case ActionKind::release:
      return;  // the arena's plan gives the memory to others
    case ActionKind::sum_tied:
      for (auto& [first, second] : bound.sums) Add(kernel, first, second, first);
      return;
    case ActionKind::norm:
      return Norm(step, bound, kernel);
    case ActionKind::send:
    case ActionKind::receive:
      timeline.bytes[Index(bound.action->kind)] += PassMessage(communicators_, bound);
      return;
    case ActionKind::fetch:
    case ActionKind::store:
    case ActionKind::squares:
      break;  // TierStreams'
    case ActionKind::optimizer_step:
      if (bound.action->bucket >= 0) return StepBucket(bound, kernel);
      return optimizer_->StepUnit(kernel, {memory_.gradient_scale.as<float>(), memory_.skip.as<int32_t>()},
                                  bound.action->unit, bound.step_whole, bound.state);
  }
  throw RuntimeError("an action is of no known kind");
}

/// A bucket that is not stepped is rounded again, since its working copy goes to memory of its own. Whether it is, the
/// device knows.
void GpuExecutor::StepBucket(const BoundAction& bound, const KernelContext& kernel) {
  const Action& action = *bound.action;
  optimizer_->RoundBucket(kernel, action.unit, action.bucket, bound.state);
  optimizer_->StepBucket(kernel, optimizer_->scalars(),
                         {memory_.gradient_scale.as<float>(), memory_.skip.as<int32_t>()}, action.unit, action.bucket,
                         bound.state);
}

void GpuExecutor::Compute(Step& step, BoundAction& bound, const KernelContext& kernel) {
  const Action& action = *bound.action;
  const Segment& segment = *segments_[action.segment];
  StepContext context = step.inputs.context;
  context.kernel = kernel;
  context.first_sample = step.inputs.micro_batches[action.micro_batch].first_sample;
  bound.io.tokens = memory_.tokens[action.micro_batch];
  bound.io.targets = memory_.targets[action.micro_batch];
  if (!memory_.first_key.empty()) bound.io.first_key = memory_.first_key[action.micro_batch];
  switch (action.kind) {
    case ActionKind::forward:
      bound.io.loss_sum = memory_.losses.as<double>() + action.micro_batch;
      return segment.Forward(context, bound.io);
    case ActionKind::recompute:
      return segment.Recompute(context, bound.io);
    case ActionKind::backward_input:
      return segment.BackwardInput(context, bound.io);
    default:
      break;
  }
  for (const Tensor& gap : bound.clear) gpu_.Set(gap.data, 0, gap.bytes(), kernel.stream);
  segment.BackwardWeight(context, bound.io);
}

void GpuExecutor::CopyTensor(const Tensor& from, const Tensor& to, void* stream) {
  if (from.data != to.data) gpu_.Copy(from.data, to.data, from.bytes(), stream);
}

void GpuExecutor::Norm(Step& step, const BoundAction& bound, const KernelContext& kernel) {
  const int64_t units = static_cast<int64_t>(layout_.units.size());
  gpu_.Set(memory_.facts.data, 0, memory_.facts.bytes(), kernel.stream);
  if (bound.squares) CopyTensor(bound.squares, memory_.facts.Flat(0, units), kernel.stream);
  for (int64_t unit = 0; bound.squares && unit < units; ++unit)  // another stage's ranks count the twin of a tied one
    if (!owned_[static_cast<size_t>(unit)]) {
      const Tensor squares = memory_.facts.Flat(unit, 1);
      gpu_.Set(squares.data, 0, squares.bytes(), kernel.stream);
    }
  std::vector<SquareTerm> terms;
  for (const UnitGradient& unit : bound.gradients)
    for (const ShardRange& range : layout_.ShardRanges(unit.unit, plan_.options.rank))
      terms.push_back({unit.gradient.Part(range), memory_.facts.Flat(unit.unit, 1)});
  AddSumsOfSquares(kernel, terms);
  WriteStepFacts(kernel, memory_.losses, NoticesOf(step.inputs), memory_.facts.Flat(units, kNormFacts));
  if (communicators_.sums) {
    Mark exchange;
    exchange.begin = Stamp(step, StreamKind::compute);
    communicators_.sums->AllGather(memory_.facts, memory_.gathered);
    exchange.end = Stamp(step, StreamKind::compute);
    step.exposed.push_back(exchange);
  } else {
    CopyTensor(memory_.facts, memory_.gathered, kernel.stream);
  }
  const StepRule rule{plan_.options.world(), units, step.inputs.context.loss_scale, step.inputs.clip,
                      static_cast<bool>(step.inputs.decide)};
  DecideStep(kernel, rule, memory_.gathered, memory_.gradient_scale, memory_.skip);
  CopyTensor(memory_.gathered, memory_.host_gathered, kernel.stream);
  CopyTensor(memory_.skip, memory_.host_skip, kernel.stream);
  CopyTensor(memory_.gradient_scale, memory_.host_scale, kernel.stream);
  step.outcome.timeline.bytes[Index(ActionKind::norm)] += memory_.facts.bytes() * (plan_.options.world() - 1);
}

/// The end of every stream, what the host is told, and the host's decision, which must be the device's.
void GpuExecutor::FinishStep(Step& step) {
  void* const compute = StreamOf(StreamKind::compute);
  step.compute_done = Stamp(step, StreamKind::compute);
  tiers_->AwaitAll([this] { CheckCommunicators(); });
  for (StreamKind kind : gpu_streams_) {
    if (kind == StreamKind::compute) continue;
    gpu_.Record(finished_[Index(kind)].get(), StreamOf(kind));
    gpu_.Wait(compute, finished_[Index(kind)].get());
  }
  CopyTensor(memory_.losses, memory_.host_losses, compute);
  step.last = Stamp(step, StreamKind::compute);
  while (!gpu_.Done(step.last)) {
    CheckCommunicators();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  const double* losses = memory_.host_losses.as<double>();
  step.outcome.local_loss.assign(losses, losses + memory_.host_losses.numel());
  if (!plan_.options.training || plan_.options.updates_only) return tiers_->End(false, 0);
  const double* gathered = memory_.host_gathered.as<double>();
  step.outcome.sums = SumRanks({gathered, static_cast<size_t>(memory_.host_gathered.numel())}, layout_.units.size(),
                               plan_.options.world());
  const bool stepped = step.inputs.decide && step.inputs.decide(step.outcome.sums);
  step.outcome.stepped = memory_.host_skip.as<int32_t>()[0] == 0;
  if (step.outcome.stepped != stepped)
    throw RuntimeError(std::string("the GPU ") + (stepped ? "skipped" : "took") +
                       " an optimizer step that the host decided otherwise about, from the same numbers: suspect its "
                       "memory");
  tiers_->End(stepped, memory_.host_scale.as<float>()[0]);
}

void GpuExecutor::CheckCommunicators() {
  for (Communicator* communicator :
       {communicators_.sums.get(), communicators_.gather.get(), communicators_.reduce.get()})
    if (communicator) communicator->CheckAsync();
  for (const auto& communicator : communicators_.messages)
    if (communicator) communicator->CheckAsync();
}

void GpuExecutor::AddTimes(Step& step) {
  Timeline& timeline = step.outcome.timeline;
  tiers_->AddTo(timeline);
  for (const Mark& wait : step.exposed) timeline.exposed_comm_seconds += gpu_.Seconds(wait.begin, wait.end);
  timeline.compute_seconds = gpu_.Seconds(step.first, step.compute_done) - timeline.exposed_comm_seconds;
  timeline.exposed_comm_seconds += gpu_.Seconds(step.compute_done, step.last);
  timeline.total_seconds = Seconds(Clock::now() - step.begin);
  for (const auto& [index, span] : step.actions) {
    const double begin = gpu_.Seconds(step.first, span.begin), end = gpu_.Seconds(step.first, span.end);
    timeline.seconds[Index(actions_[index].action->kind)] += end - begin;
    timeline.spans.push_back(Span{static_cast<int>(index), begin, end});
  }
}

}  // namespace ds
