#include "kernels/rms_norm.h"

#include <cmath>
#include <vector>

#include "kernels/column_sums.h"
#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::Acc;
using detail::kColumnsPerSlice;
using detail::kRowsPerBlock;
using detail::LaneSum;

template <class T>
void Forward(const KernelContext& context, const Tensor& x, const T* weight, double eps, T* y, Acc<T>* rstd) {
  using A = Acc<T>;
  const int64_t columns = detail::Columns(x);
  const T* in = x.as<T>();
  detail::ParallelBlocks(context, detail::Rows(x), kRowsPerBlock, [&](int64_t begin, int64_t end) {
    std::vector<A> buffers(static_cast<size_t>(3 * columns));
    A *x_buffer = buffers.data(), *w_buffer = x_buffer + columns, *y_buffer = w_buffer + columns;
    const A* w = detail::Load(weight, w_buffer, columns);
    for (int64_t row = begin; row < end; ++row) {
      const A* v = detail::Load(in + row * columns, x_buffer, columns);
      const A squares = LaneSum<A>(columns, [v](int64_t i) { return v[i] * v[i]; });
      const A r = A(1) / std::sqrt(squares / static_cast<A>(columns) + static_cast<A>(eps));
      A* out = detail::StoreTarget(y + row * columns, y_buffer);
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) out[i] = v[i] * r * w[i];
      detail::Store(out, y + row * columns, columns);
      rstd[row] = r;
    }
  });
}

/// dx = rstd * (g - xhat * mean(g * xhat)) with g = dy * weight.
template <class T>
void BackwardInput(const KernelContext& context, const T* dy, const Tensor& x, const T* weight, const Acc<T>* rstd,
                   const T* residual, T* dx) {
  using A = Acc<T>;
  const int64_t columns = detail::Columns(x);
  const T* in = x.as<T>();
  detail::ParallelBlocks(context, detail::Rows(x), kRowsPerBlock, [&](int64_t begin, int64_t end) {
    std::vector<A> buffers(static_cast<size_t>(4 * columns));
    A *x_buffer = buffers.data(), *w_buffer = x_buffer + columns, *d_buffer = w_buffer + columns;
    A* r_buffer = d_buffer + columns;
    const A* w = detail::Load(weight, w_buffer, columns);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * columns;
      const A* v = detail::Load(in + at, x_buffer, columns);
      const A* d = detail::Load(dy + at, d_buffer, columns);
      const A r = rstd[row];
      const A mean_gx =
          LaneSum<A>(columns, [=](int64_t i) { return d[i] * w[i] * (v[i] * r); }) / static_cast<A>(columns);
      A* out = detail::StoreTarget(dx + at, x_buffer);
      if (residual) {
        const A* add = detail::Load(residual + at, r_buffer, columns);
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = r * (d[i] * w[i] - v[i] * r * mean_gx) + add[i];
      } else {
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = r * (d[i] * w[i] - v[i] * r * mean_gx);
      }
      detail::Store(out, dx + at, columns);
    }
  });
}

template <class T>
void BackwardWeight(const KernelContext& context, const T* dy, const Tensor& x, const Acc<T>* rstd, Acc<T>* dweight,
                    bool accumulate) {
  using A = Acc<T>;
  const int64_t columns = detail::Columns(x);
  const T* in = x.as<T>();
  detail::SumOverRows<1, A>(context, detail::Rows(x), columns, {dweight}, accumulate,
                            [&](int64_t row, int64_t begin, int64_t n, A(&sums)[1][kColumnsPerSlice]) {
                              A x_buffer[kColumnsPerSlice], d_buffer[kColumnsPerSlice];
                              const A* v = detail::Load(in + row * columns + begin, x_buffer, n);
                              const A* d = detail::Load(dy + row * columns + begin, d_buffer, n);
                              const A r = rstd[row];
#pragma omp simd
                              for (int64_t j = 0; j < n; ++j) sums[0][j] += d[j] * (v[j] * r);
                            });
}

}  // namespace

void RmsNormForward(const KernelContext& context, Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd) {
  const char* kernel = "RmsNormForward";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  detail::CheckVector(kernel, "weight", weight, x.dtype, columns);
  detail::CheckMatrix(kernel, "y", y, x.dtype, rows, columns);
  detail::CheckVector(kernel, "rstd", rstd, detail::AccumulateType(x.dtype), rows);
  if (detail::RanOnCuda(kernel, cuda::RmsNormForward, context, x, weight, eps, y, rstd)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    Forward<T>(context, x, weight.as<T>(), eps, y.as<T>(), rstd.as<Acc<T>>());
  });
}

void RmsNormBackwardInput(const KernelContext& context, Tensor dy, Tensor x, Tensor weight, Tensor rstd,
                          Tensor residual, Tensor dx) {
  const char* kernel = "RmsNormBackwardInput";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  detail::CheckMatrix(kernel, "dy", dy, x.dtype, rows, columns);
  detail::CheckVector(kernel, "weight", weight, x.dtype, columns);
  detail::CheckVector(kernel, "rstd", rstd, detail::AccumulateType(x.dtype), rows);
  detail::CheckMatrix(kernel, "dx", dx, x.dtype, rows, columns);
  if (residual) detail::CheckMatrix(kernel, "residual", residual, x.dtype, rows, columns);
  if (detail::RanOnCuda(kernel, cuda::RmsNormBackwardInput, context, dy, x, weight, rstd, residual, dx)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    BackwardInput<T>(context, dy.as<T>(), x, weight.as<T>(), rstd.as<Acc<T>>(), residual ? residual.as<T>() : nullptr,
                     dx.as<T>());
  });
}

void RmsNormBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor rstd, Tensor dweight,
                           bool accumulate) {
  const char* kernel = "RmsNormBackwardWeight";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const DType sums = detail::AccumulateType(x.dtype);
  detail::CheckMatrix(kernel, "dy", dy, x.dtype, rows, columns);
  detail::CheckVector(kernel, "rstd", rstd, sums, rows);
  detail::CheckVector(kernel, "dweight", dweight, sums, columns);
  if (detail::RanOnCuda(kernel, cuda::RmsNormBackwardWeight, context, dy, x, rstd, dweight, accumulate)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    BackwardWeight<T>(context, dy.as<T>(), x, rstd.as<Acc<T>>(), dweight.as<Acc<T>>(), accumulate);
  });
}

}  // namespace ds
