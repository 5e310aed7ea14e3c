#include "runtime/segments/branch_segment.h"

namespace ds {

BranchSegment::BranchSegment(const SegmentSpec& spec, const SegmentOptions& options, DropoutPlace residual_dropout)
    : SegmentBase(spec, options),
      norm_(FindNorm()),
      residual_dropout_(residual_dropout),
      dropped_dy_(model().dropout > 0 ? RequiredTensor(spec.carried, "dropped_dy") : -1) {}

void BranchSegment::Recompute(const StepContext& step, const SegmentIo& io) const {
  WriteSaved(Pass::recompute, step, io);
}

void BranchSegment::WriteSaved(Pass pass, const StepContext& step, const SegmentIo& io) const {
  Require(pass, "x", io.x, compute(), SampleShape());
  RequireParams(pass, io);
  RequireAll(pass, "saved", io.saved, spec().saved);
  NormForward(step, model(), norm_, io, Rows(io.x));
  WriteBranchSaved(step, io);
}

void BranchSegment::WriteY(const StepContext& step, const SegmentIo& io, const LinearIndices& last, Tensor input,
                           Scratch& scratch) const {
  if (!DropoutActive(step)) return LinearAddForward(step, last, io, input, Rows(io.x), Rows(io.y));
  Tensor projection = scratch.Take(compute(), RowShape());
  LinearForward(step, last, io, input, projection);
  ApplyDropout(step, residual_dropout_, projection, io.x, io.y);
}

Tensor BranchSegment::WriteBranchDy(const StepContext& step, const SegmentIo& io) const {
  if (DropoutActive(step)) ApplyDropout(step, residual_dropout_, io.dy, {}, io.carried[dropped_dy_]);
  return BranchDy(step, io);
}

Tensor BranchSegment::BranchDy(const StepContext& step, const SegmentIo& io) const {
  return DropoutActive(step) ? io.carried[dropped_dy_] : Rows(io.dy);
}

void BranchSegment::WriteDx(const StepContext& step, const SegmentIo& io) const {
  NormBackwardInput(step, model(), norm_, io, Rows(io.x), Rows(io.dy), Rows(io.dx));
}

void BranchSegment::RequireBackward(Pass pass, const SegmentIo& io) const {
  Require(pass, "x", io.x, compute(), SampleShape());
  Require(pass, "dy", io.dy, compute(), SampleShape());
  RequireAll(pass, "saved", io.saved, spec().saved);
  RequireAll(pass, "carried", io.carried, spec().carried);
  if (pass == Pass::backward_weight) return RequireGrads(io);
  Require(pass, "dx", io.dx, compute(), SampleShape());
  RequireParams(pass, io);
}

}  // namespace ds
