// A linear layer, y = x W^T + b with W [out, in], and the two halves of its backward; its products are of the compute
// dtype, or of 8 bits (kernels/fp8_linear.h).
#pragma once

#include "kernels/activation.h"
#include "runtime/segments/segment.h"

namespace ds {

struct LinearIndices {
  int weight = -1, bias = -1;  ///< in params and grads; -1: no bias
  bool fp8 = false;            ///< its three products are of 8 bits
};

void LinearForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor y);
/// y = residual + x W^T + b. On GPUs one kernel, which rounds once (kernels/linear.h); not in 8 bits.
void LinearAddForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor residual,
                      Tensor y);
/// pre = x W^T + b, y = gelu(pre). On GPUs one kernel where kernels/linear.h says so; not in 8 bits.
void LinearGeluForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, GeluKind kind, Tensor x,
                       Tensor pre, Tensor y);
/// dpre = (dy W) * gelu'(pre), for the layer behind the GELU. Likewise.
void LinearGeluBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, GeluKind kind,
                             Tensor dy, Tensor pre, Tensor dpre);
/// dx = dy W.
void LinearBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor dx);
/// dW = dy^T x, db = sum of dy over rows; added to what is there when io.accumulate.
void LinearBackwardWeight(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor x);

}  // namespace ds
