// When and what a run writes.
#include <chrono>

#include "runtime/train/state_transfer.h"
#include "runtime/train/trainer.h"

namespace ds {

bool Trainer::CheckpointDue(bool stopping) const {
  const int64_t every = spec_.checkpoint.every;
  if (every < 0) return false;
  if (stopping) return spec_.checkpoint.on_signal || (every > 0 && state_.step % every == 0);
  return IsLastStep() || (every > 0 && state_.step % every == 0);
}

double Trainer::WriteState() {
  const auto begin = std::chrono::steady_clock::now();
  environment_.reporter->OnState("checkpointing");
  CheckStateIsFinite();
  last_checkpoint_ = WriteCheckpoint(environment_.run_directory + "/checkpoints", state_, SlicesOf(*store_),
                                     spec_.checkpoint.keep, *communicators_.control);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  Event("checkpoint", last_checkpoint_);
  environment_.reporter->OnState("training");
  return seconds;
}

}  // namespace ds
