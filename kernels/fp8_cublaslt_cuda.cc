#include <stdexcept>
#include <string>

#include "kernels/check.h"
#include "kernels/cublaslt.h"
#include "kernels/fp8.h"

namespace ds::cuda {

void MatMulFp8(const KernelContext& context, Tensor a, Tensor a_inverse, Tensor b, Tensor b_inverse, Tensor bias,
               Tensor c, bool accumulate) {
  const char* kernel = "MatMulFp8";
  for (const Tensor& t : {a, b, bias, c})
    detail::Check(reinterpret_cast<uintptr_t>(t.data) % 16 == 0, kernel, "a matrix starts at no multiple of 16 bytes");
  MatMulOptions options;
  options.transpose_b = true, options.accumulate = accumulate;
  LtProduct p = ProductOf(a, b, c, options);
  p.a_scale = static_cast<const float*>(a_inverse.data), p.b_scale = static_cast<const float*>(b_inverse.data);
  if (bias) p.epilogue = MatMulEpilogue::bias, p.bias = bias.data;
  if (!MultiplyWithLt(context, kernel, p))
    throw std::runtime_error(std::string(kernel) + ": cuBLASLt has no product of m = " + std::to_string(p.m) +
                             ", n = " + std::to_string(p.n) + ", k = " + std::to_string(p.k) + " in " + NameOf(p.ab) +
                             " on this GPU; 8-bit products need compute capability 8.9 or more: write training.fp8: "
                             "false for others");
}

}  // namespace ds::cuda
