#include "kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/cublaslt.h"
#include "kernels/matmul_fallback.h"

namespace ds::cuda {

void MatMul(const KernelContext& context, Tensor a, Tensor b, Tensor c, const MatMulOptions& options) {
  LtProduct p = ProductOf(a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  if (options.bias && options.bias.dtype == c.dtype) {
    p.epilogue = MatMulEpilogue::bias, p.bias = options.bias.data;
    if (MultiplyWithLt(context, "MatMul", p)) return;
    p.epilogue = MatMulEpilogue::none, p.bias = nullptr;
  }
  if (!MultiplyWithLt(context, "MatMul", p)) MultiplyPlainly(context, p);
  if (options.bias) AddBiasToRows(context, options.bias, c);
}

}  // namespace ds::cuda
