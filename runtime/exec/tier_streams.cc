#include "runtime/exec/tier_streams.h"

#include <thread>

#include "kernels/elementwise.h"
#include "runtime/base/activity.h"
#include "runtime/base/error.h"
#include "runtime/base/failpoint.h"
#include "runtime/exec/action_names.h"
#include "runtime/plan/planner.h"

namespace ds {
namespace {

int Index(StreamKind stream) { return static_cast<int>(stream); }
int Index(ActionKind kind) { return static_cast<int>(kind); }

double Seconds(TierStreams::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

constexpr std::chrono::milliseconds kPoll{5};        // between looks at communicators
constexpr std::chrono::microseconds kEventPoll{20};  // between looks at a GPU's event

}  // namespace

TierStreams::TierStreams(const ExecutorContext& context, std::vector<BoundAction>& actions,
                         const std::vector<GpuEvent>& done, void* const* streams)
    : layout_(context.bind.layout),
      plan_(context.bind.plan),
      gpu_(*context.gpu),
      communicators_(context.communicators),
      attempt_(context.attempt),
      actions_(actions),
      done_(done),
      streams_(streams),
      host_work_(context.bind.plan, context.optimizer, context.files, context.pending),
      there_(actions.size()) {
  for (size_t i = 0; i < actions_.size(); ++i) {
    const StreamKind stream = actions_[i].action->stream;
    if (!Runs(stream)) continue;
    any_ = true;
    of_stream_[Index(stream)].push_back(i);
    if (!threads_[Index(stream)]) threads_[Index(stream)] = std::make_unique<StreamThread>();
  }
}

void TierStreams::Begin(const StepInputs& inputs, Clock::time_point begin) {
  inputs_ = &inputs;
  begin_ = begin;
  there_.Reset();
  host_work_.Begin(!inputs.decide);
  for (int stream = 0; stream < kStreams; ++stream) {
    times_[stream] = {};
    if (threads_[stream]) threads_[stream]->Start([this, stream] { RunStream(static_cast<StreamKind>(stream)); });
  }
}

void TierStreams::Enqueued(size_t action) {
  if (actions_[action].action->signals) there_.Signal(action);
}

void TierStreams::Await(size_t action, const std::function<void()>& poll) {
  while (!there_.WaitFor(action, kPoll)) poll();
}

void TierStreams::AwaitAll(const std::function<void()>& poll) {
  for (const std::vector<size_t>& of_stream : of_stream_)
    if (!of_stream.empty()) Await(of_stream.back(), poll);
  for (auto& thread : threads_)
    if (thread) thread->Join();
}

void TierStreams::Cancel() {
  there_.Cancel();
  for (auto& thread : threads_)
    if (thread) thread->Join();
  failure_.Rethrow();
}

void TierStreams::AddTo(Timeline& timeline) {
  for (const Timeline& part : times_) {
    for (int kind = 0; kind < kActionKinds; ++kind) {
      timeline.seconds[kind] += part.seconds[kind];
      timeline.bytes[kind] += part.bytes[kind];
    }
    timeline.spans.insert(timeline.spans.end(), part.spans.begin(), part.spans.end());
  }
}

void TierStreams::RunStream(StreamKind stream) noexcept {
  SetFailpointScope(plan_.options.job_rank(), attempt_);
  Timeline& times = times_[Index(stream)];
  for (const size_t index : of_stream_[Index(stream)]) {
    BoundAction& bound = actions_[index];
    try {
      if (index == of_stream_[Index(stream)].front()) gpu_.Use();
      for (int earlier : bound.action->waits) AwaitEarlier(stream, static_cast<size_t>(earlier));
      const RunningAction running(Index(stream), index);
      const Clock::time_point begin = Clock::now();
      if (FailpointsSet()) Failpoint(FailpointOf(layout_, plan_, inputs_->context.step, index));
      const bool left_out = LeavesOut(*bound.action);
      if (!left_out) Do(bound);
      if (OnGpu(stream) && bound.action->signals) gpu_.Record(done_[index].get(), streams_[Index(stream)]);
      if (inputs_->watch) inputs_->watch->After(inputs_->context.kernel, bound, static_cast<int>(index));
      const Clock::time_point end = Clock::now();
      times.seconds[Index(bound.action->kind)] += Seconds(end - begin);
      times.bytes[Index(bound.action->kind)] += left_out ? 0 : bound.action->bytes;
      if (inputs_->trace)
        times.spans.push_back(Span{static_cast<int>(index), Seconds(begin - begin_), Seconds(end - begin_)});
    } catch (const StreamCancelled&) {
      return;
    } catch (...) {
      if (failure_.Set(Explain(layout_, plan_, inputs_->context.step, index))) {
        there_.Cancel();
        communicators_.Abort("rank " + std::to_string(plan_.options.job_rank()) + " failed in " +
                             Describe(layout_, plan_, index));
      }
      return;
    }
    there_.Signal(index);
  }
}

void TierStreams::AwaitEarlier(StreamKind stream, size_t earlier) {
  there_.Wait(earlier);
  if (!OnGpu(actions_[earlier].action->stream)) return;  // done
  if (OnGpu(stream)) return gpu_.Wait(streams_[Index(stream)], done_[earlier].get());
  while (!gpu_.Done(done_[earlier].get())) {
    there_.ThrowIfCancelled();
    std::this_thread::sleep_for(kEventPoll);
  }
}

void TierStreams::Do(BoundAction& bound) {
  const KernelContext kernel{inputs_->context.kernel.threads};
  switch (bound.action->stream) {
    case StreamKind::fetch:
    case StreamKind::store:
      return gpu_.Copy(bound.from.memory.data, bound.to.memory.data, bound.action->bytes,
                       streams_[Index(bound.action->stream)]);
    case StreamKind::read:
    case StreamKind::write:
      return host_work_.MoveFile(bound);
    default:
      break;
  }
  switch (bound.action->kind) {
    case ActionKind::sum_tied:
      for (auto& [first, second] : bound.sums) Add(kernel, first, second, first);
      return;
    case ActionKind::squares:
      return host_work_.Squares(kernel, bound);
    case ActionKind::optimizer_step:
      return host_work_.StepBucket(kernel, bound);
    default:
      throw RuntimeError("an action of the host stream is of no kind that the host computes");
  }
}

}  // namespace ds
