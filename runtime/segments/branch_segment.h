// A segment of the form y = x + dropout(branch(norm(x))): what attention and MLP have in common.
#pragma once

#include "runtime/segments/linear.h"
#include "runtime/segments/segment_base.h"

namespace ds {

class BranchSegment : public SegmentBase {
 public:
  void Recompute(const StepContext& step, const SegmentIo& io) const final;

 protected:
  BranchSegment(const SegmentSpec& spec, const SegmentOptions& options, DropoutPlace residual_dropout);

  /// Checks x, params and saved, and writes saved from x: norm, then the segment's own tensors.
  void WriteSaved(Pass pass, const StepContext& step, const SegmentIo& io) const;
  /// Writes what `saved` holds besides the norm's tensors.
  virtual void WriteBranchSaved(const StepContext& step, const SegmentIo& io) const = 0;

  /// y = x + dropout(last(input)). Takes [N, D] of the scratch where there is dropout.
  void WriteY(const StepContext& step, const SegmentIo& io, const LinearIndices& last, Tensor input,
              Scratch& scratch) const;

  /// The gradient of the branch's output: dy behind the residual dropout. The first writes carried dropped_dy when
  /// dropout is active, the second finds it there.
  Tensor WriteBranchDy(const StepContext& step, const SegmentIo& io) const;
  Tensor BranchDy(const StepContext& step, const SegmentIo& io) const;

  /// dx from carried dnormed, and dy over the residual path.
  void WriteDx(const StepContext& step, const SegmentIo& io) const;

  /// x, dy, saved and carried; and dx and params for BackwardInput, grads for BackwardWeight.
  void RequireBackward(Pass pass, const SegmentIo& io) const;

  const NormIndices norm_;

 private:
  const DropoutPlace residual_dropout_;
  const int dropped_dy_;
};

}  // namespace ds
