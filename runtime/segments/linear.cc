#include "runtime/segments/linear.h"

#include "kernels/elementwise.h"
#include "kernels/fp8_linear.h"
#include "kernels/linear.h"
#include "kernels/matmul.h"

namespace ds {
namespace {

Tensor Bias(const LinearIndices& at, const SegmentIo& io) { return at.bias >= 0 ? io.params[at.bias] : Tensor(); }

}  // namespace

void LinearForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor y) {
  if (at.fp8) return Fp8LinearForward(step.kernel, x, io.params[at.weight], Bias(at, io), y);
  MatMulOptions options;
  options.transpose_b = true;
  options.bias = Bias(at, io);
  MatMul(step.kernel, x, io.params[at.weight], y, options);
}

void LinearAddForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor x, Tensor residual,
                      Tensor y) {
  if (!at.fp8) return LinearAddForward(step.kernel, x, io.params[at.weight], Bias(at, io), residual, y);
  LinearForward(step, at, io, x, y);
  Add(step.kernel, residual, y, y);
}

void LinearGeluForward(const StepContext& step, const LinearIndices& at, const SegmentIo& io, GeluKind kind, Tensor x,
                       Tensor pre, Tensor y) {
  if (!at.fp8) return LinearGeluForward(step.kernel, kind, x, io.params[at.weight], Bias(at, io), pre, y);
  LinearForward(step, at, io, x, pre);
  GeluForward(step.kernel, kind, pre, y);
}

void LinearGeluBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, GeluKind kind,
                             Tensor dy, Tensor pre, Tensor dpre) {
  if (!at.fp8) return LinearGeluBackwardInput(step.kernel, kind, dy, io.params[at.weight], pre, dpre);
  LinearBackwardInput(step, at, io, dy, dpre);
  GeluBackward(step.kernel, kind, dpre, pre, dpre);
}

void LinearBackwardInput(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor dx) {
  if (at.fp8) return Fp8LinearBackwardInput(step.kernel, dy, io.params[at.weight], dx);
  MatMul(step.kernel, dy, io.params[at.weight], dx);
}

void LinearBackwardWeight(const StepContext& step, const LinearIndices& at, const SegmentIo& io, Tensor dy, Tensor x) {
  if (at.fp8) {
    Fp8LinearBackwardWeight(step.kernel, dy, x, io.grads[at.weight], io.accumulate);
  } else {
    MatMulOptions options;
    options.transpose_a = true;
    options.accumulate = io.accumulate;
    MatMul(step.kernel, dy, x, io.grads[at.weight], options);
  }
  if (at.bias >= 0) BiasBackward(step.kernel, dy, io.grads[at.bias], io.accumulate);
}

}  // namespace ds
