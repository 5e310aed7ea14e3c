// The streams of a GPU rank that have a thread each: fetch and store, which copy between host and device; read and
// write, which move between host and files; and the host's, which steps what is kept below the device.
//
// The thread that enqueues the device's work runs far ahead of the GPU. It must not wait for files or for the host's
// steps where nothing that it has to enqueue depends on them: so whatever waits for such has a thread of its own. An
// action of fetch or store is `there` once it is enqueued, and its event says when it is done; one of the others once
// it is done.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/gpu.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/host_work.h"
#include "runtime/exec/streams.h"

namespace ds {

class TierStreams {
 public:
  using Clock = std::chrono::steady_clock;

  /// actions, done: the executor's bound actions, and the events of those that signal on a GPU's stream; `streams`: the
  /// GPU's of fetch and store, by StreamKind. All outlive this.
  TierStreams(const ExecutorContext& context, std::vector<BoundAction>& actions, const std::vector<GpuEvent>& done,
              void* const* streams);

  static bool Runs(StreamKind stream) { return stream >= StreamKind::fetch; }
  static bool OnGpu(StreamKind stream) { return stream <= StreamKind::store; }
  /// Whether the plan has such actions.
  bool any() const { return any_; }

  /// Starts a step. `inputs` outlives it.
  void Begin(const StepInputs& inputs, Clock::time_point begin);
  /// The caller has enqueued one of its own actions, and recorded its event.
  void Enqueued(size_t action);
  /// Until an action of these streams is there. `poll` is called meanwhile. Throws StreamCancelled after a failure.
  void Await(size_t action, const std::function<void()>& poll);
  /// Until all of the step are there.
  void AwaitAll(const std::function<void()>& poll);
  /// Ends the step after a failure elsewhere, and waits for the threads. Rethrows what failed here first, if anything
  /// did.
  void Cancel();
  /// After AwaitAll: what HostWork::End does.
  void End(bool stepped, float gradient_scale) { host_work_.End(stepped, gradient_scale); }
  bool LeavesOut(const Action& action) const { return host_work_.LeavesOut(action); }
  /// After AwaitAll: adds the times and bytes of the step.
  void AddTo(Timeline& timeline);

 private:
  void RunStream(StreamKind stream) noexcept;
  void AwaitEarlier(StreamKind stream, size_t earlier);
  void Do(BoundAction& bound);

  const ModelLayout& layout_;
  const Plan& plan_;
  Gpu& gpu_;
  Communicators& communicators_;
  const int64_t attempt_;
  std::vector<BoundAction>& actions_;
  const std::vector<GpuEvent>& done_;
  void* const* streams_;
  HostWork host_work_;
  bool any_ = false;
  EventTable there_;
  FirstFailure failure_;
  std::vector<size_t> of_stream_[kStreams];
  Timeline times_[kStreams];
  // Of the step in progress:
  const StepInputs* inputs_ = nullptr;
  Clock::time_point begin_;
  std::unique_ptr<StreamThread> threads_[kStreams];  // last: they use the rest
};

}  // namespace ds
