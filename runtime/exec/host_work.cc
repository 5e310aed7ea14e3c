#include "runtime/exec/host_work.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce.h"
#include "runtime/base/error.h"

namespace ds {

HostWork::HostWork(const Plan& plan, const Optimizer* optimizer, FileTier* files, PendingUpdate* pending)
    : optimizer_(optimizer), pending_(HasPending(plan) ? pending : nullptr) {
  if (HasPending(plan) && !pending) throw RuntimeError("a plan leaves updates to the next step, and nobody keeps them");
  for (const Action& action : plan.actions) {
    if (action.stream == StreamKind::read && !read_) read_ = std::make_unique<FileLane>(*files);
    if (action.stream == StreamKind::write && !write_) write_ = std::make_unique<FileLane>(*files);
  }
}

void HostWork::End(bool stepped, float gradient_scale) {
  if (!pending_) return;
  pending_->there = stepped;
  pending_->gradient_scale = gradient_scale;
  if (stepped) pending_->scalars = optimizer_->scalars();
}

void HostWork::MoveFile(const BoundAction& bound) {
  if (bound.action->stream == StreamKind::read)
    read_->Read(bound.from.file_offset, bound.to.memory.data, bound.action->bytes);
  else
    write_->Write(bound.to.file_offset, bound.from.memory.data, bound.action->bytes);
}

void HostWork::Squares(const KernelContext& kernel, const BoundAction& bound) {
  double* const sums = bound.squares.as<double>();
  if (bound.clears_squares) std::fill_n(sums, bound.squares.numel(), 0.0);
  const double squares = SumOfSquares(kernel, bound.shard);
  sums[bound.action->unit] += squares;
  if (!std::isfinite(squares)) withheld_ = true;
}

void HostWork::StepBucket(const KernelContext& kernel, const BoundAction& bound) {
  const Action& action = *bound.action;
  constexpr float kUnscaled = 1;
  if (action.pending)
    optimizer_->StepBucket(kernel, pending_->scalars, {&pending_->gradient_scale}, action.unit, action.bucket,
                           bound.state);
  else if (!withheld_)
    optimizer_->StepBucket(kernel, optimizer_->scalars(), {&kUnscaled}, action.unit, action.bucket, bound.state);
  else
    optimizer_->RoundBucket(kernel, action.unit, action.bucket, bound.state);
}

}  // namespace ds
