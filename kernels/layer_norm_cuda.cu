#include "kernels/cuda_column_sums.h"
#include "kernels/cuda_rows.h"
#include "kernels/layer_norm.h"

namespace ds::cuda {
namespace {

template <class T, int N, bool kAligned, int kPacks>
__global__ void __launch_bounds__(MaxThreadsOf(kPacks))
    Forward(int64_t rows, int64_t columns, const T* x, const T* weight, const T* bias, Acc<T> eps, T* y, Acc<T>* mean,
            Acc<T>* rstd) {
  using A = Acc<T>;
  const int64_t row = Row();
  if (row >= rows) return;
  const RowReader<T, N, kAligned, kPacks, 1> reader({x + row * columns}, columns);
  A sum[1] = {0};
  reader.ForEach([&](int64_t, const Pack<A, N>(&v)[1]) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[0] += v[0][i];
  });
  SumOverRow(sum);
  const A m = sum[0] / static_cast<A>(columns);
  A variance[1] = {0};
  reader.ForEach([&](int64_t, const Pack<A, N>(&v)[1]) {
#pragma unroll
    for (int i = 0; i < N; ++i) variance[0] += (v[0][i] - m) * (v[0][i] - m);
  });
  SumOverRow(variance);
  const A r = A(1) / sqrt(variance[0] / static_cast<A>(columns) + eps);
  reader.ForEach([&](int64_t column, const Pack<A, N>(&v)[1]) {
    const Pack<A, N> w = Load<N, kAligned>(weight + column);
    Pack<A, N> out = Load<N, kAligned>(bias + column);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = (v[0][i] - m) * r * w[i] + out[i];
    Store<kAligned>(y + row * columns + column, out);
  });
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = r;
  }
}

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight.
template <class T, int N, bool kAligned, int kPacks>
__global__ void __launch_bounds__(MaxThreadsOf(kPacks))
    BackwardInput(int64_t rows, int64_t columns, const T* dy, const T* x, const T* weight, const Acc<T>* mean,
                  const Acc<T>* rstd, const T* residual, T* dx) {
  using A = Acc<T>;
  const int64_t row = Row();
  if (row >= rows) return;
  const int64_t at = row * columns;
  const RowReader<T, N, kAligned, kPacks, 3> reader({dy + at, x + at, residual ? residual + at : nullptr}, columns);
  const A m = mean[row], r = rstd[row];
  A sums[2] = {0, 0};
  reader.ForEach([&](int64_t column, const Pack<A, N>(&v)[3]) {
    const Pack<A, N> w = Load<N, kAligned>(weight + column);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const A g = v[0][i] * w[i];
      sums[0] += g;
      sums[1] += g * ((v[1][i] - m) * r);
    }
  });
  SumOverRow(sums);
  const A mean_g = sums[0] / static_cast<A>(columns), mean_gx = sums[1] / static_cast<A>(columns);
  reader.ForEach([&](int64_t column, const Pack<A, N>(&v)[3]) {
    Pack<A, N> out = Load<N, kAligned>(weight + column);
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = r * (v[0][i] * out[i] - mean_g - (v[1][i] - m) * r * mean_gx);
    if (residual) {
#pragma unroll
      for (int i = 0; i < N; ++i) out[i] += v[2][i];
    }
    Store<kAligned>(dx + at + column, out);
  });
}

template <class T>
struct WeightTerms {
  static constexpr int kColumnBytes = 2 * sizeof(T);
  template <int N>
  struct Row {
    Pack<T, N> dy, x;
    Acc<T> mean, rstd;
  };
  const T *dy, *x;
  const Acc<T>*mean, *rstd;
  int64_t columns;
  template <int N>
  __device__ Row<N> Load(int64_t row, int64_t column) const {
    const int64_t at = row * columns + column;
    return {LoadRaw<N>(dy + at), LoadRaw<N>(x + at), mean[row], rstd[row]};
  }
  template <int N>
  __device__ void Add(const Row<N>& row, Acc<T> (&sums)[2][N]) const {
    const Pack<Acc<T>, N> d = ConvertPack<Acc<T>>(row.dy), v = ConvertPack<Acc<T>>(row.x);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[0][i] += d[i] * ((v[i] - row.mean) * row.rstd);
      sums[1][i] += d[i];
    }
  }
};

}  // namespace

void LayerNormForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, double eps, Tensor y,
                      Tensor mean, Tensor rstd) {
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const bool aligned = Aligned(x.data, weight.data, bias.data, y.data);
  DispatchRows(x.dtype, "LayerNormForward", columns, aligned, [&](auto type, auto pack, auto is_aligned, auto packs) {
    using T = decltype(type);
    LaunchRows<pack, packs>(context, "LayerNormForward", rows, columns, Forward<T, pack, is_aligned, packs>,
                            Elements<const T>(x), Elements<const T>(weight), Elements<const T>(bias),
                            static_cast<Acc<T>>(eps), Elements<T>(y), Elements<Acc<T>>(mean), Elements<Acc<T>>(rstd));
  });
}

void LayerNormBackwardInput(const KernelContext& context, Tensor dy, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                            Tensor residual, Tensor dx) {
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const bool aligned = Aligned(dy.data, x.data, weight.data, residual.data, dx.data);
  DispatchRows(x.dtype, "LayerNormBackwardInput", columns, aligned,
               [&](auto type, auto pack, auto is_aligned, auto packs) {
                 using T = decltype(type);
                 LaunchRows<pack, packs>(context, "LayerNormBackwardInput", rows, columns,
                                         BackwardInput<T, pack, is_aligned, packs>, Elements<const T>(dy),
                                         Elements<const T>(x), Elements<const T>(weight), Elements<const Acc<T>>(mean),
                                         Elements<const Acc<T>>(rstd), Elements<const T>(residual), Elements<T>(dx));
               });
}

void LayerNormBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                             Tensor dweight, Tensor dbias, bool accumulate) {
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  DispatchPacks(x.dtype, "LayerNormBackwardWeight", columns, Aligned(dy.data, x.data), [&](auto type, auto pack) {
    using T = decltype(type);
    SumOverRows<pack>(
        context, "LayerNormBackwardWeight", rows, columns,
        WeightTerms<T>{Elements<T>(dy), Elements<T>(x), Elements<Acc<T>>(mean), Elements<Acc<T>>(rstd), columns},
        ColumnOutputs<Acc<T>, 2>{{Elements<Acc<T>>(dweight), Elements<Acc<T>>(dbias)}}, accumulate);
  });
}

}  // namespace ds::cuda
