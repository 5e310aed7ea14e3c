// The normalisation at the start of a segment: LayerNorm or RMSNorm, as the model says.
#pragma once

#include "runtime/segments/segment.h"

namespace ds {

/// Where a segment's norm finds its tensors; -1: this model has none.
struct NormIndices {
  int weight = -1, bias = -1;             ///< in params
  int normed = -1, mean = -1, rstd = -1;  ///< in saved
  int dnormed = -1;                       ///< in carried
};

/// saved normed and statistics from x.
void NormForward(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                 Tensor x);
/// dx = d(loss)/dx through the norm, from carried dnormed (+ residual when given).
void NormBackwardInput(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                       Tensor x, Tensor residual, Tensor dx);
/// The gradients of weight and bias, from carried dnormed.
void NormBackwardWeight(const StepContext& step, const ModelConfig& model, const NormIndices& at, const SegmentIo& io,
                        Tensor x);

}  // namespace ds
