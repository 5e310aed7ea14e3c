// What the host has not stepped yet when a step ends, for those who read parameters or optimizer state then.
#include "runtime/train/trainer.h"

namespace ds {

void Trainer::FinishUpdates() {
  if (!pending_.there) return;
  // As a part of the next step, which names these actions so and in which they would have been done.
  const StepOutcome outcome = updates_executor_->Run(Inputs(true));
  for (int kind = 0; kind < kActionKinds; ++kind) updates_bytes_[kind] += outcome.timeline.bytes[kind];
}

}  // namespace ds
