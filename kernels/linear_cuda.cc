#include "kernels/linear.h"

#include "kernels/cublaslt.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace ds::cuda {
namespace {

bool Is16Bit(const LtProduct& p) { return p.ab == DType::bf16 || p.ab == DType::f16; }

bool Aligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses)
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  return true;
}

}  // namespace

void LinearGeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor weight, Tensor bias, Tensor pre,
                       Tensor y) {
  MatMulOptions options;
  options.transpose_b = true, options.bias = bias;
  LtProduct p = ProductOf(x, weight, y, options);
  if (p.m == 0 || p.n == 0) return;
  if (MayFuseGelu(kind, p.ab, p.n) && Aligned({x.data, weight.data, bias.data, pre.data, y.data})) {
    p.epilogue = bias ? MatMulEpilogue::bias_gelu : MatMulEpilogue::gelu;
    p.bias = bias.data, p.aux = pre.data;
    if (MultiplyWithLt(context, "LinearGeluForward", p)) return;
  }
  ds::MatMul(context, x, weight, pre, options);
  ds::GeluForward(context, kind, pre, y);
}

void LinearGeluBackwardInput(const KernelContext& context, GeluKind kind, Tensor dy, Tensor weight, Tensor pre,
                             Tensor dpre) {
  LtProduct p = ProductOf(dy, weight, dpre, {});
  if (p.m == 0 || p.n == 0) return;
  if (MayFuseGelu(kind, p.ab, p.n) && Aligned({dy.data, weight.data, pre.data, dpre.data})) {
    p.epilogue = MatMulEpilogue::gelu_backward, p.aux = pre.data;
    if (MultiplyWithLt(context, "LinearGeluBackwardInput", p)) return;
  }
  ds::MatMul(context, dy, weight, dpre);
  ds::GeluBackward(context, kind, dpre, pre, dpre);
}

void LinearAddForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, Tensor residual, Tensor y) {
  MatMulOptions options;
  options.transpose_b = true, options.bias = bias;
  LtProduct p = ProductOf(x, weight, y, options);
  if (p.m == 0 || p.n == 0) return;
  if (Is16Bit(p) && Aligned({x.data, weight.data, bias.data, residual.data, y.data})) {
    p.accumulate = true, p.added = residual.data;
    if (bias) p.epilogue = MatMulEpilogue::bias, p.bias = bias.data;
    if (MultiplyWithLt(context, "LinearAddForward", p)) return;
  }
  ds::MatMul(context, x, weight, y, options);
  ds::Add(context, residual, y, y);
}

}  // namespace ds::cuda
