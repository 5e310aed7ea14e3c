#include "runtime/exec/host_work.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce.h"

namespace ds {

HostWork::HostWork(const Plan& plan, const Optimizer* optimizer, FileTier* files) : plan_(plan), optimizer_(optimizer) {
  for (const Action& action : plan.actions) {
    if (action.stream == StreamKind::read && !read_) read_ = std::make_unique<FileLane>(*files);
    if (action.stream == StreamKind::write && !write_) write_ = std::make_unique<FileLane>(*files);
  }
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

void HostWork::StepBucket(const KernelContext& kernel, const BoundAction& bound, bool stepped, float gradient_scale) {
  const bool early = plan_.options.placement.steps_early;
  const float scale = early ? 1 : gradient_scale;
  if (early ? !withheld_ : stepped)
    optimizer_->StepBucket(kernel, {&scale}, bound.action->unit, bound.action->bucket, bound.state);
  else
    optimizer_->RoundBucket(kernel, bound.action->unit, bound.action->bucket, bound.state);
}

}  // namespace ds
