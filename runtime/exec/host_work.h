// What both executors do on the host beside the device: moves between the host and files, and the optimizer of what is
// kept below the device.
#pragma once

#include <memory>

#include "runtime/exec/bind.h"
#include "runtime/exec/pending_update.h"
#include "runtime/optim/optimizer.h"
#include "runtime/state/file_lane.h"

namespace ds {

class HostWork {
 public:
  /// `files`: of the plan's file tier; null: it has none. `pending`: null where the plan has no pending actions.
  /// Everything outlives this.
  HostWork(const Plan& plan, const Optimizer* optimizer, FileTier* files, PendingUpdate* pending);

  /// Before a step. held: no bucket may be stepped early.
  void Begin(bool held) { withheld_ = held; }
  /// After it, when no stream is running: what was pending is done; where the step `stepped`, the host's part of it is
  /// pending now.
  void End(bool stepped, float gradient_scale);

  /// Whether the action is of the step before, and that left nothing.
  bool LeavesOut(const Action& action) const { return action.pending && !pending_->there; }

  /// A Fetch or Store between memory of the host and files, on the thread of its stream.
  void MoveFile(const BoundAction& bound);

  // On the thread of the host stream:
  /// Adds the squares of a bucket's gradient to its unit's. Where they are not finite no later bucket steps early.
  void Squares(const KernelContext& kernel, const BoundAction& bound);
  /// Steps a bucket: as the step before decided, or early. One that is withheld is rounded again, since its working
  /// copy may go to memory of its own.
  void StepBucket(const KernelContext& kernel, const BoundAction& bound);

 private:
  const Optimizer* optimizer_;
  std::unique_ptr<FileLane> read_, write_;
  PendingUpdate* const pending_;  // null: the plan has no pending actions
  bool withheld_ = false;
};

}  // namespace ds
