// What both executors do on the host beside the device: moves between the host and files, and the optimizer of what is
// kept below the device.
#pragma once

#include <memory>

#include "runtime/exec/bind.h"
#include "runtime/optim/optimizer.h"
#include "runtime/state/file_lane.h"

namespace ds {

class HostWork {
 public:
  /// `files`: of the plan's file tier; null: it has none. Everything outlives this.
  HostWork(const Plan& plan, const Optimizer* optimizer, FileTier* files);

  /// Before a step. held: no bucket may be stepped.
  void Begin(bool held) { withheld_ = held; }

  /// A Fetch or Store between memory of the host and files, on the thread of its stream.
  void MoveFile(const BoundAction& bound);

  // On the thread of the host stream:
  /// Adds the squares of a bucket's gradient to its unit's. Where they are not finite no later bucket steps early.
  void Squares(const KernelContext& kernel, const BoundAction& bound);
  /// Steps a bucket. Placement::steps_early: unless it is withheld; else where Norm `stepped`, by `gradient_scale`. A
  /// bucket that is not stepped is rounded again, since its working copy may go to memory of its own.
  void StepBucket(const KernelContext& kernel, const BoundAction& bound, bool stepped, float gradient_scale);

 private:
  const Plan& plan_;
  const Optimizer* optimizer_;
  std::unique_ptr<FileLane> read_, write_;
  bool withheld_ = false;
};

}  // namespace ds
