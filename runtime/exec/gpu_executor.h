// Runs a plan on a GPU: one thread enqueues the actions, in the plan's order, on the stream that each names; events
// stand for the plan's waits. Moves between tiers and the host's steps have threads of their own (tier_streams.h). All
// ranks so launch their collectives in one order. The host waits once, at the end of the step: whether the optimizer
// steps, and by what factor, is decided on the device (kernels/step_decision.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/gpu.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/gpu_step_memory.h"
#include "runtime/exec/tier_streams.h"

namespace ds {

class GpuExecutor : public Executor {
 public:
  /// context.gpu is not null; of its memory the executor takes ExecutorBytes (plan/executor_memory.h). Calls come from
  /// a thread that has the GPU (Gpu::Use).
  explicit GpuExecutor(const ExecutorContext& context);
  StepOutcome Run(const StepInputs& inputs) override;

 private:
  struct Step;  // the state of one Run
  /// Timed events on one stream, behind each other, and what the time between two of them was.
  struct Mark {
    void* begin;
    void* end;
  };

  void Enqueue(Step& step, size_t index);
  void RunAction(Step& step, BoundAction& bound, const KernelContext& kernel);
  void Compute(Step& step, BoundAction& bound, const KernelContext& kernel);
  void Norm(Step& step, const BoundAction& bound, const KernelContext& kernel);
  void StepBucket(const BoundAction& bound, const KernelContext& kernel);
  void FinishStep(Step& step);
  void CheckCommunicators();
  void AddTimes(Step& step);
  void CopyTensor(const Tensor& from, const Tensor& to, void* stream);
  KernelContext KernelOn(const Step& step, StreamKind stream) const;
  void* StreamOf(StreamKind stream) const { return streams_[static_cast<int>(stream)]; }
  /// A timed event, recorded on the stream now.
  void* Stamp(Step& step, StreamKind stream);

  const ModelLayout& layout_;
  const Plan& plan_;
  const std::vector<std::unique_ptr<Segment>>& segments_;
  const Optimizer* optimizer_;
  Communicators& communicators_;
  const int64_t attempt_;
  Gpu& gpu_;
  const Tensor workspace_;
  std::vector<BoundAction> actions_;
  std::vector<std::string> names_;       // of the actions, for profilers
  std::vector<StreamKind> gpu_streams_;  // that this thread or TierStreams enqueues on
  std::vector<bool> owned_;              // of a unit: this stage's ranks count it in Norm

  GpuStream own_streams_[kStreams];  // where no communicator has one
  void* streams_[kStreams] = {};     // null: of no GPU's stream
  std::vector<GpuEvent> done_;       // of the actions that signal; others are empty
  std::vector<GpuEvent> stamps_;     // timed; taken anew in every step
  GpuEvent finished_[kStreams];

  GpuStepMemory memory_;
  std::unique_ptr<TierStreams> tiers_;  // last: its threads use the rest
};

}  // namespace ds
