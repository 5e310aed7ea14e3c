// A linear layer, y = x W^T + b with W [out, in], and the two halves of its backward.
#pragma once

#include "runtime/segments/segment.h"

namespace ds {

struct LinearIndices {
  int weight = -1, bias = -1;  ///< in params and grads; -1: no bias
};

void LinearForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor y);
/// y = residual + x W^T + b. On GPUs one kernel, which rounds once (kernels/linear.h).
void LinearAddForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor residual,
                      Tensor y);
/// dx = dy W.
void LinearBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor dx);
/// dW = dy^T x, db = sum of dy over rows; added to what is there when io.accumulate.
void LinearBackwardWeight(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor x);

}  // namespace ds
