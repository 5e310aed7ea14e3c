#include "runtime/exec/executor.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

int Index(StreamKind stream) { return static_cast<int>(stream); }
int Index(ActionKind kind) { return static_cast<int>(kind); }

/// What Norm gathers of every rank besides a sum of squares a unit.
enum NormFact { kLossSum, kNotices, kBadMicroBatch, kNormFacts };
static_assert(kNormFacts == kNormExtras, "the plan prices what the executor sends");

/// What a rank may tell the others in kNotices: bits.
enum Notice { kStopAsked = 1, kCheckpointFailed = 2 };

/// "BackwardWeight layer3.mlp mb0": an action's description without its number.
std::string NameOfAction(const ModelLayout& layout, const Plan& plan, size_t index) {
  const std::string description = Describe(layout, plan, index);
  const size_t space = description.find(' ');
  return space == std::string::npos ? description : description.substr(space + 1);
}

}  // namespace

Communicators Communicators::Make(const CommunicatorFactory& factory, bool background_checkpoints) {
  Communicators made;
  made.control = factory("control");
  made.gather = factory("gather");
  made.reduce = factory("reduce");
  if (background_checkpoints) made.checkpoint = factory("checkpoint");
  return made;
}

void Communicators::Abort(const std::string& reason) noexcept {
  for (Communicator* communicator : {control.get(), gather.get(), reduce.get(), checkpoint.get()})
    if (communicator) communicator->Abort(reason);
}

/// Timelines are kept apart by stream while they run, so that threads share nothing but events.
struct Executor::Step {
  const StepInputs& inputs;
  StepOutcome& outcome;
  Clock::time_point begin;
  Timeline of_stream[3];
};

Executor::Executor(const BindContext& context, const std::vector<std::unique_ptr<Segment>>& segments,
                   const Optimizer* optimizer, Communicators& communicators, int64_t attempt)
    : layout_(context.layout),
      plan_(context.plan),
      segments_(segments),
      optimizer_(optimizer),
      communicators_(communicators),
      attempt_(attempt),
      actions_(Bind(context)),
      events_(context.plan.actions.size()) {
  for (size_t i = 0; i < actions_.size(); ++i) of_stream_[Index(actions_[i].action->stream)].push_back(i);
  for (StreamKind stream : {StreamKind::gather, StreamKind::reduce})
    if (!of_stream_[Index(stream)].empty()) threads_[Index(stream)] = std::make_unique<StreamThread>();
}

StepOutcome Executor::Run(const StepInputs& inputs) {
  StepOutcome outcome;
  outcome.local_loss.assign(inputs.micro_batches.size(), 0.0);
  if (inputs.micro_batches.size() != static_cast<size_t>(plan_.options.micro_batches))
    throw RuntimeError(std::to_string(inputs.micro_batches.size()) + " micro-batches for a plan of " +
                       std::to_string(plan_.options.micro_batches));
  events_.Reset();
  Step step{inputs, outcome, Clock::now(), {}};
  for (StreamKind stream : {StreamKind::gather, StreamKind::reduce})
    if (threads_[Index(stream)]) threads_[Index(stream)]->Start([this, &step, stream] { RunStream(step, stream); });
  RunStream(step, StreamKind::compute);

  const Clock::time_point compute_done = Clock::now();
  for (auto& thread : threads_)
    if (thread) thread->Join();
  failure_.Rethrow();

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

void Executor::RunStream(Step& step, StreamKind stream) noexcept {
  SetFailpointScope(plan_.options.rank, attempt_);
  Timeline& timeline = step.of_stream[Index(stream)];
  for (size_t index : of_stream_[Index(stream)]) {
    BoundAction& bound = actions_[index];
    try {
      const Clock::time_point asked = Clock::now();
      for (int earlier : bound.action->waits) events_.Wait(static_cast<size_t>(earlier));
      const Clock::time_point begin = Clock::now();
      if (stream == StreamKind::compute && !bound.action->waits.empty())
        timeline.exposed_comm_seconds += Seconds(begin - asked);
      if (FailpointsSet()) Failpoint(NameOfFailpoint(step, index));
      if (step.inputs.watch) step.inputs.watch->Before(step.inputs.context.kernel, bound, static_cast<int>(index));
      RunAction(step, bound, index);
      if (FailpointsSet())
        if (const auto number = FailpointNumber(NameOfFailpoint(step, index))) Spoil(layout_, plan_, bound, *number);
      if (step.inputs.watch) step.inputs.watch->After(step.inputs.context.kernel, bound, static_cast<int>(index));
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
      if (failure_.Set(Explain(step, index))) {
        events_.Cancel();
        communicators_.Abort("rank " + std::to_string(plan_.options.rank) + " failed in " +
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

std::string Executor::NameOfFailpoint(const Step& step, size_t index) const {
  return "step:" + std::to_string(step.inputs.context.step) + "/" + NameOfAction(layout_, plan_, index);
}

/// The exception in flight, with rank, step and action in front; its kind stays.
std::exception_ptr Executor::Explain(const Step& step, size_t index) const {
  const std::string where = "rank " + std::to_string(plan_.options.rank) + ", step " +
                            std::to_string(step.inputs.context.step) + ", action " + Describe(layout_, plan_, index) +
                            ": ";
  try {
    throw;
  } catch (const CommunicatorAborted& error) {
    return std::make_exception_ptr(CommunicatorAborted(where + error.what()));
  } catch (const Error& error) {
    return std::make_exception_ptr(Error(error.code(), where + error.what()));
  } catch (const std::exception& error) {
    return std::make_exception_ptr(RuntimeError(where + error.what()));
  }
}

void Executor::RunAction(Step& step, BoundAction& bound, size_t index) {
  const KernelContext& kernel = step.inputs.context.kernel;
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
    case ActionKind::optimizer_step:
      if (step.outcome.stepped) optimizer_->StepUnit(kernel, bound.action->unit, bound.step_whole, bound.state);
      return;
  }
  throw RuntimeError("action " + std::to_string(index) + " is of no known kind");
}

void Executor::Compute(Step& step, BoundAction& bound) {
  const Action& action = *bound.action;
  const MicroBatch& micro_batch = step.inputs.micro_batches[action.micro_batch];
  const Segment& segment = *segments_[action.segment];
  StepContext context = step.inputs.context;
  context.first_sample = micro_batch.first_sample;
  bound.io.tokens = micro_batch.tokens;
  bound.io.targets = micro_batch.targets;
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

void Executor::Gather(Step& step, const BoundAction& bound) {
  communicators_.gather->AllGather(bound.shard, bound.whole);
  const int64_t others = plan_.options.ranks - 1;
  step.of_stream[Index(StreamKind::gather)].bytes[Index(ActionKind::gather)] += bound.shard.bytes() * others;
}

void Executor::Reduce(Step& step, const BoundAction& bound) {
  const KernelContext single;  // the compute stream has the cores
  const bool accumulate = bound.action->accumulate;
  if (plan_.options.ranks == 1) {
    if (accumulate)
      Add(single, bound.shard, bound.whole, bound.shard);
    else if (bound.shard.data != bound.whole.data)
      std::memcpy(bound.shard.data, bound.whole.data, static_cast<size_t>(bound.whole.bytes()));
    return;
  }
  const Tensor piece = bound.staging ? bound.staging : bound.shard;
  communicators_.reduce->ReduceScatter(bound.whole, piece, bound.workspace);
  if (bound.staging) {
    if (accumulate)
      Add(single, bound.shard, bound.staging, bound.shard);
    else
      std::memcpy(bound.shard.data, bound.staging.data, static_cast<size_t>(bound.staging.bytes()));
  }
  if (bound.all) communicators_.reduce->AllGather(bound.shard, bound.all);
  const int64_t times = bound.all ? 2 : 1;
  step.of_stream[Index(StreamKind::reduce)].bytes[Index(ActionKind::reduce)] +=
      times * piece.bytes() * (plan_.options.ranks - 1);
}

// One small all-gather carries all that the ranks must agree on. Squares are summed over a unit's ranks in rank order,
// then over units in model order: the same numbers in the same order under every ZeRO stage.
void Executor::Norm(Step& step, const BoundAction& bound) {
  Timeline& timeline = step.of_stream[Index(StreamKind::compute)];
  const Clock::time_point begin = Clock::now();
  const size_t units = layout_.units.size(), width = units + kNormExtras,
               ranks = static_cast<size_t>(plan_.options.ranks);
  norm_send_.assign(width, 0.0);
  norm_receive_.assign(width * ranks, 0.0);
  for (const UnitGradient& unit : bound.gradients)
    for (const ShardRange& range : layout_.ShardRanges(unit.unit, plan_.options.rank))
      norm_send_[unit.unit] += SumOfSquares(step.inputs.context.kernel, unit.gradient.Part(range));
  AddLocalFacts(step, &norm_send_[units]);

  const Clock::time_point sent = Clock::now();
  communicators_.control->AllGather(Tensor::Of(norm_send_.data(), Shape{static_cast<int64_t>(width)}),
                                    Tensor::Of(norm_receive_.data(), Shape{static_cast<int64_t>(width * ranks)}));
  const Clock::time_point received = Clock::now();

  step.outcome.sums = SumRanks();
  step.outcome.stepped = step.inputs.decide(step.outcome.sums);

  timeline.exposed_comm_seconds += Seconds(received - sent);
  timeline.compute_seconds += Seconds(sent - begin) + Seconds(Clock::now() - received);
  timeline.bytes[Index(ActionKind::norm)] += static_cast<int64_t>(width * sizeof(double)) * (plan_.options.ranks - 1);
}

void Executor::AddLocalFacts(const Step& step, double* facts) const {
  facts[kLossSum] = 0;
  facts[kBadMicroBatch] = -1;
  for (size_t m = 0; m < step.outcome.local_loss.size(); ++m) {
    const double loss = step.outcome.local_loss[m];
    facts[kLossSum] += loss;
    if (!std::isfinite(loss) && facts[kBadMicroBatch] < 0) facts[kBadMicroBatch] = static_cast<double>(m);
  }
  facts[kNotices] = (step.inputs.stop ? kStopAsked : 0) | (step.inputs.checkpoint_failed ? kCheckpointFailed : 0);
}

StepSums Executor::SumRanks() const {
  const size_t units = layout_.units.size(), width = units + kNormExtras;
  const int ranks = plan_.options.ranks;
  StepSums sums;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* facts = &norm_receive_[static_cast<size_t>(rank) * width + units];
    sums.rank_loss.push_back(facts[kLossSum]);
    sums.loss += facts[kLossSum];
    const int notices = static_cast<int>(facts[kNotices]);
    sums.stop = sums.stop || (notices & kStopAsked);
    sums.checkpoint_failed = sums.checkpoint_failed || (notices & kCheckpointFailed);
    if (facts[kBadMicroBatch] < 0 || sums.bad_loss_rank >= 0) continue;
    sums.bad_loss_rank = rank;
    sums.bad_loss_micro_batch = static_cast<int>(facts[kBadMicroBatch]);
  }
  for (size_t unit = 0; unit < units; ++unit) {
    double squares = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const double part = norm_receive_[static_cast<size_t>(rank) * width + unit];
      squares += part;
      if (std::isfinite(part) || sums.bad_unit == static_cast<int>(unit)) continue;
      sums.bad_unit = static_cast<int>(unit);
      sums.bad_rank = rank;
    }
    sums.squares += squares;
  }
  return sums;
}

}  // namespace ds
