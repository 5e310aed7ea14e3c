// Runs a plan on the CPU: a loop over actions on its streams (compute on the calling thread, others on a thread each).
// A failure on any stream cancels the others.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "runtime/exec/host_work.h"
#include "runtime/exec/streams.h"

namespace ds {

class HostExecutor : public Executor {
 public:
  explicit HostExecutor(const ExecutorContext& context);
  StepOutcome Run(const StepInputs& inputs) override;

 private:
  struct Step;  // the state of one Run
  void RunStream(Step& step, StreamKind stream) noexcept;
  void RunAction(Step& step, BoundAction& bound, size_t index);
  void Compute(Step& step, BoundAction& bound);
  void Gather(Step& step, const BoundAction& bound);
  void Reduce(Step& step, const BoundAction& bound);
  void Norm(Step& step, const BoundAction& bound);
  void Move(Step& step, const BoundAction& bound);
  void StepBucket(Step& step, const BoundAction& bound);

  const ModelLayout& layout_;
  const Plan& plan_;
  const std::vector<std::unique_ptr<Segment>>& segments_;
  const Optimizer* optimizer_;
  Communicators& communicators_;
  int64_t attempt_;
  std::vector<BoundAction> actions_;
  std::vector<size_t> of_stream_[kStreams];
  EventTable events_;
  FirstFailure failure_;
  std::vector<double> norm_send_, norm_receive_;
  HostWork host_work_;
  float gradient_scale_ = 0;                         // of the step's Norm
  const std::vector<bool> owned_;                    // of a unit: this stage's ranks count it in Norm
  std::unique_ptr<StreamThread> threads_[kStreams];  // compute has none
};

}  // namespace ds
