#include "kernels/dropout.h"

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/dropout_mask.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::Acc;
using detail::kMaxFactors;

template <class T>
void Block(const detail::DropoutRule& rule, RandomStream stream, uint64_t first, const T* x, const T* residual, T* y,
           int64_t n) {
  Acc<T> factors[kMaxFactors], x_buffer[kMaxFactors], r_buffer[kMaxFactors];
  detail::DropoutFactors(rule, stream, first, factors, n);
  const Acc<T>* in = detail::Load(x, x_buffer, n);
  Acc<T>* out = detail::StoreTarget(y, x_buffer);
  // Chosen, not multiplied: a dropped infinity or NaN is 0.
  if (residual) {
    const Acc<T>* add = detail::Load(residual, r_buffer, n);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = (factors[i] != 0 ? in[i] * factors[i] : Acc<T>(0)) + add[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) out[i] = factors[i] != 0 ? in[i] * factors[i] : Acc<T>(0);
  }
  detail::Store(out, y, n);
}

}  // namespace

void Dropout(const KernelContext& context, RandomStream stream, uint64_t first, float p, Tensor x, Tensor residual,
             Tensor y) {
  const char* kernel = "Dropout";
  detail::CheckFloating(kernel, "x", x);
  detail::CheckVector(kernel, "y", y, x.dtype, x.numel());
  if (residual) detail::CheckVector(kernel, "residual", residual, x.dtype, x.numel());
  const detail::DropoutRule rule = detail::MakeDropoutRule(kernel, p);
  if (detail::RanOnCuda(kernel, cuda::Dropout, context, stream, first, p, x, residual, y)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    detail::ParallelBlocks(context, x.numel(), kMaxFactors, [&](int64_t begin, int64_t end) {
      Block(rule, stream, first + static_cast<uint64_t>(begin), x.as<T>() + begin,
            residual ? residual.as<T>() + begin : nullptr, y.as<T>() + begin, end - begin);
    });
  });
}

}  // namespace ds
