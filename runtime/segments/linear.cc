#include "runtime/segments/linear.h"

#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "kernels/matmul.h"

namespace ds {

void LinearForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor y) {
  MatMulOptions options;
  options.transpose_b = true;
  if (at.bias >= 0) options.bias = io.params[at.bias];
  MatMul(step.kernel, x, io.params[at.weight], y, options);
}

void LinearAddForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor residual,
                      Tensor y) {
  LinearAddForward(step.kernel, x, io.params[at.weight], at.bias >= 0 ? io.params[at.bias] : Tensor(), residual, y);
}

void LinearBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor dx) {
  MatMul(step.kernel, dy, io.params[at.weight], dx);
}

void LinearBackwardWeight(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor x) {
  MatMulOptions options;
  options.transpose_a = true;
  options.accumulate = io.accumulate;
  MatMul(step.kernel, dy, x, io.grads[at.weight], options);
  if (at.bias >= 0) BiasBackward(step.kernel, dy, io.grads[at.bias], io.accumulate);
}

}  // namespace ds
