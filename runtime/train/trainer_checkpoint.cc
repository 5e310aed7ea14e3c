// When and what a run writes.
#include <chrono>
#include <cmath>
#include <utility>

#include "runtime/train/state_transfer.h"
#include "runtime/train/trainer.h"

namespace ds {
namespace {

std::string Told(int64_t step, const std::string& folder) { return "step " + std::to_string(step) + ": " + folder; }

}  // namespace

bool Trainer::CheckpointDue(bool stopping) const {
  const int64_t every = spec_.checkpoint.every;
  if (every < 0) return false;
  if (stopping) return spec_.checkpoint.on_signal || (every > 0 && state_.step % every == 0);
  return IsLastStep() || (every > 0 && state_.step % every == 0);
}

void Trainer::FollowCheckpoint() {
  if (!background_) return;
  if (checkpoint_failed_) {             // the same step on every rank, and every rank's write throws
    communicators_.control->Barrier();  // once all have done the step
    background_->Wait();
  }
  TellWritten();
}

void Trainer::TellWritten() {
  if (const auto written = background_->TakeWritten()) {
    last_checkpoint_ = written->folder;
    Event("checkpoint", Told(written->step, written->folder));
  }
}

void Trainer::FinishCheckpoint() {
  if (!background_) return;
  background_->Wait();
  TellWritten();
}

double Trainer::TakeCheckpoint(bool last) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  const Clock::time_point begin = Clock::now();
  environment_.reporter->OnState("checkpointing");
  const bool waits = background_ && background_->busy();
  FinishCheckpoint();
  if (waits && !last && !std::exchange(wait_told_, true))
    Event("checkpoint_wait", "step " + std::to_string(state_.step) + ": training waited " +
                                 std::to_string(std::lround(seconds_since(begin) * 1e3)) +
                                 " ms for the checkpoint before this one: a write takes longer than "
                                 "checkpoint.every=" +
                                 std::to_string(spec_.checkpoint.every) +
                                 " steps; later waits are in checkpoint_stall_ms alone");
  FinishUpdates();
  CheckStateIsFinite();
  // After the last step there is nothing to go on with, so nothing needs a copy.
  if (background_ && !last) {
    background_->Begin(state_, SlicesOf(*store_));
  } else {
    last_checkpoint_ =
        WriteCheckpoint(CheckpointRoot(), state_, SlicesOf(*store_), spec_.checkpoint.keep, *communicators_.control);
    Event("checkpoint", Told(state_.step, last_checkpoint_));
  }
  const double seconds = seconds_since(begin);
  environment_.reporter->OnState("training");
  return seconds;
}

}  // namespace ds
