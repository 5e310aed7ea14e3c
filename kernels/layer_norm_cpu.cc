#include "kernels/layer_norm.h"

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
void Forward(const KernelContext& context, const Tensor& x, const T* weight, const T* bias, double eps, T* y,
             Acc<T>* mean, Acc<T>* rstd) {
  using A = Acc<T>;
  const int64_t columns = detail::Columns(x);
  const T* in = x.as<T>();
  detail::ParallelBlocks(context, detail::Rows(x), kRowsPerBlock, [&](int64_t begin, int64_t end) {
    std::vector<A> buffers(static_cast<size_t>(4 * columns));
    A *x_buffer = buffers.data(), *w_buffer = x_buffer + columns, *b_buffer = w_buffer + columns;
    A* y_buffer = b_buffer + columns;
    const A* w = detail::Load(weight, w_buffer, columns);
    const A* b = detail::Load(bias, b_buffer, columns);
    for (int64_t row = begin; row < end; ++row) {
      const A* v = detail::Load(in + row * columns, x_buffer, columns);
      const A m = LaneSum<A>(columns, [v](int64_t i) { return v[i]; }) / static_cast<A>(columns);
      const A variance = LaneSum<A>(columns, [v, m](int64_t i) { return (v[i] - m) * (v[i] - m); });
      const A r = A(1) / std::sqrt(variance / static_cast<A>(columns) + static_cast<A>(eps));
      A* out = detail::StoreTarget(y + row * columns, y_buffer);
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) out[i] = (v[i] - m) * r * w[i] + b[i];
      detail::Store(out, y + row * columns, columns);
      mean[row] = m;
      rstd[row] = r;
    }
  });
}

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight.
template <class T>
void BackwardInput(const KernelContext& context, const T* dy, const Tensor& x, const T* weight, const Acc<T>* mean,
                   const Acc<T>* rstd, const T* residual, T* dx) {
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
      const A m = mean[row], r = rstd[row], inverse = A(1) / static_cast<A>(columns);
      const A mean_g = LaneSum<A>(columns, [=](int64_t i) { return d[i] * w[i]; }) * inverse;
      const A mean_gx = LaneSum<A>(columns, [=](int64_t i) { return d[i] * w[i] * ((v[i] - m) * r); }) * inverse;
      A* out = detail::StoreTarget(dx + at, x_buffer);
      if (residual) {
        const A* add = detail::Load(residual + at, r_buffer, columns);
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = r * (d[i] * w[i] - mean_g - (v[i] - m) * r * mean_gx) + add[i];
      } else {
#pragma omp simd
        for (int64_t i = 0; i < columns; ++i) out[i] = r * (d[i] * w[i] - mean_g - (v[i] - m) * r * mean_gx);
      }
      detail::Store(out, dx + at, columns);
    }
  });
}

template <class T>
void BackwardWeight(const KernelContext& context, const T* dy, const Tensor& x, const Acc<T>* mean, const Acc<T>* rstd,
                    Acc<T>* dweight, Acc<T>* dbias, bool accumulate) {
  using A = Acc<T>;
  const int64_t columns = detail::Columns(x);
  const T* in = x.as<T>();
  detail::SumOverRows<2, A>(context, detail::Rows(x), columns, {dweight, dbias}, accumulate,
                            [&](int64_t row, int64_t begin, int64_t n, A(&sums)[2][kColumnsPerSlice]) {
                              A x_buffer[kColumnsPerSlice], d_buffer[kColumnsPerSlice];
                              const A* v = detail::Load(in + row * columns + begin, x_buffer, n);
                              const A* d = detail::Load(dy + row * columns + begin, d_buffer, n);
                              const A m = mean[row], r = rstd[row];
#pragma omp simd
                              for (int64_t j = 0; j < n; ++j) {
                                sums[0][j] += d[j] * ((v[j] - m) * r);
                                sums[1][j] += d[j];
                              }
                            });
}

}  // namespace

void LayerNormForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, double eps, Tensor y,
                      Tensor mean, Tensor rstd) {
  const char* kernel = "LayerNormForward";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const DType statistics = detail::AccumulateType(x.dtype);
  detail::CheckVector(kernel, "weight", weight, x.dtype, columns);
  detail::CheckVector(kernel, "bias", bias, x.dtype, columns);
  detail::CheckMatrix(kernel, "y", y, x.dtype, rows, columns);
  detail::CheckVector(kernel, "mean", mean, statistics, rows);
  detail::CheckVector(kernel, "rstd", rstd, statistics, rows);
  if (detail::RanOnCuda(kernel, cuda::LayerNormForward, context, x, weight, bias, eps, y, mean, rstd)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    Forward<T>(context, x, weight.as<T>(), bias.as<T>(), eps, y.as<T>(), mean.as<Acc<T>>(), rstd.as<Acc<T>>());
  });
}

void LayerNormBackwardInput(const KernelContext& context, Tensor dy, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                            Tensor residual, Tensor dx) {
  const char* kernel = "LayerNormBackwardInput";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const DType statistics = detail::AccumulateType(x.dtype);
  detail::CheckMatrix(kernel, "dy", dy, x.dtype, rows, columns);
  detail::CheckVector(kernel, "weight", weight, x.dtype, columns);
  detail::CheckVector(kernel, "mean", mean, statistics, rows);
  detail::CheckVector(kernel, "rstd", rstd, statistics, rows);
  detail::CheckMatrix(kernel, "dx", dx, x.dtype, rows, columns);
  if (residual) detail::CheckMatrix(kernel, "residual", residual, x.dtype, rows, columns);
  if (detail::RanOnCuda(kernel, cuda::LayerNormBackwardInput, context, dy, x, weight, mean, rstd, residual, dx)) return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    BackwardInput<T>(context, dy.as<T>(), x, weight.as<T>(), mean.as<Acc<T>>(), rstd.as<Acc<T>>(),
                     residual ? residual.as<T>() : nullptr, dx.as<T>());
  });
}

void LayerNormBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                             Tensor dweight, Tensor dbias, bool accumulate) {
  const char* kernel = "LayerNormBackwardWeight";
  detail::CheckFloating(kernel, "x", x);
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const DType sums = detail::AccumulateType(x.dtype);
  detail::CheckMatrix(kernel, "dy", dy, x.dtype, rows, columns);
  detail::CheckVector(kernel, "mean", mean, sums, rows);
  detail::CheckVector(kernel, "rstd", rstd, sums, rows);
  detail::CheckVector(kernel, "dweight", dweight, sums, columns);
  detail::CheckVector(kernel, "dbias", dbias, sums, columns);
  if (detail::RanOnCuda(kernel, cuda::LayerNormBackwardWeight, context, dy, x, mean, rstd, dweight, dbias, accumulate))
    return;
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    BackwardWeight<T>(context, dy.as<T>(), x, mean.as<Acc<T>>(), rstd.as<Acc<T>>(), dweight.as<Acc<T>>(),
                      dbias.as<Acc<T>>(), accumulate);
  });
}

}  // namespace ds
