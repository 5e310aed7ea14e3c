#include "kernels/linear.h"

#include "kernels/dispatch.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace ds {

void LinearGeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor weight, Tensor bias, Tensor pre,
                       Tensor y) {
  const char* kernel = "LinearGeluForward";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), features = detail::Columns(pre);
  detail::CheckMatrix(kernel, "weight", weight, x.dtype, features, detail::Columns(x));
  if (bias) detail::CheckVector(kernel, "bias", bias, x.dtype, features);
  detail::CheckMatrix(kernel, "pre", pre, x.dtype, rows, features);
  detail::CheckMatrix(kernel, "y", y, x.dtype, rows, features);
  if (detail::RanOnCuda(kernel, cuda::LinearGeluForward, context, kind, x, weight, bias, pre, y)) return;
  MatMulOptions options;
  options.transpose_b = true, options.bias = bias;
  MatMul(context, x, weight, pre, options);
  GeluForward(context, kind, pre, y);
}

void LinearGeluBackwardInput(const KernelContext& context, GeluKind kind, Tensor dy, Tensor weight, Tensor pre,
                             Tensor dpre) {
  const char* kernel = "LinearGeluBackwardInput";
  detail::CheckFloating(kernel, "dy", dy);
  const int64_t rows = detail::Rows(dy), features = detail::Columns(pre);
  detail::CheckMatrix(kernel, "weight", weight, dy.dtype, detail::Columns(dy), features);
  detail::CheckMatrix(kernel, "pre", pre, dy.dtype, rows, features);
  detail::CheckMatrix(kernel, "dpre", dpre, dy.dtype, rows, features);
  if (detail::RanOnCuda(kernel, cuda::LinearGeluBackwardInput, context, kind, dy, weight, pre, dpre)) return;
  MatMul(context, dy, weight, dpre);
  GeluBackward(context, kind, dpre, pre, dpre);
}

void LinearAddForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, Tensor residual, Tensor y) {
  const char* kernel = "LinearAddForward";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), features = detail::Columns(y);
  detail::CheckMatrix(kernel, "weight", weight, x.dtype, features, detail::Columns(x));
  if (bias) detail::CheckVector(kernel, "bias", bias, x.dtype, features);
  detail::CheckMatrix(kernel, "residual", residual, x.dtype, rows, features);
  detail::CheckMatrix(kernel, "y", y, x.dtype, rows, features);
  if (detail::RanOnCuda(kernel, cuda::LinearAddForward, context, x, weight, bias, residual, y)) return;
  MatMulOptions options;
  options.transpose_b = true, options.bias = bias;
  MatMul(context, x, weight, y, options);
  Add(context, residual, y, y);
}

}  // namespace ds
