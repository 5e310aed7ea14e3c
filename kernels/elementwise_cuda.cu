#include "kernels/cuda_column_sums.h"
#include "kernels/cuda_elementwise.h"
#include "kernels/elementwise.h"

namespace ds::cuda {
namespace {

template <class T>
struct FillElements {
  T* x;
  double value;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<double, N> values;
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = value;
    Store(x + i, values);
  }
};

template <class From, class To>
struct CastElements {
  const From* from;
  To* to;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Store(to + i, LoadRaw<N>(from + i));
  }
};

template <class T>
struct AddElements {
  const T *a, *b;
  T* y;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> sum = Load<N>(a + i);
    const Pack<Acc<T>, N> right = Load<N>(b + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += right[k];
    Store(y + i, sum);
  }
};

template <class T>
struct ScaleElements {
  T* x;
  T factor;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<T, N> values = LoadRaw<N>(x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] *= factor;
    StoreRaw(x + i, values);
  }
};

template <class T>
struct BiasTerms {
  const T* dy;
  int64_t columns;
  template <int N>
  __device__ void Add(int64_t row, int64_t column, Acc<T> (&sums)[1][N]) const {
    const Pack<Acc<T>, N> d = Load<N>(dy + row * columns + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[0][i] += d[i];
  }
};

}  // namespace

void Fill(const KernelContext& context, Tensor x, double value) {
  DispatchFloating(x.dtype, "Fill", [&](auto type) {
    using T = decltype(type);
    ForEachElement(context, "Fill", x.numel(), Aligned(x.data), FillElements<T>{Elements<T>(x), value});
  });
}

void Cast(const KernelContext& context, Tensor from, Tensor to) {
  DispatchFloating(from.dtype, "Cast", [&](auto from_type) {
    DispatchFloating(to.dtype, "Cast", [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      ForEachElement(context, "Cast", from.numel(), Aligned(from.data, to.data),
                     CastElements<From, To>{Elements<From>(from), Elements<To>(to)});
    });
  });
}

void Add(const KernelContext& context, Tensor a, Tensor b, Tensor y) {
  DispatchFloating(a.dtype, "Add", [&](auto type) {
    using T = decltype(type);
    ForEachElement(context, "Add", a.numel(), Aligned(a.data, b.data, y.data),
                   AddElements<T>{Elements<T>(a), Elements<T>(b), Elements<T>(y)});
  });
}

void Scale(const KernelContext& context, Tensor x, double factor) {
  const auto scale = [&](auto type) {
    using T = decltype(type);
    ForEachElement(context, "Scale", x.numel(), Aligned(x.data),
                   ScaleElements<T>{Elements<T>(x), static_cast<T>(factor)});
  };
  if (x.dtype == DType::f64)
    scale(double{});
  else
    scale(float{});
}

void BiasBackward(const KernelContext& context, Tensor dy, Tensor dbias, bool accumulate) {
  const int64_t rows = detail::Rows(dy), columns = detail::Columns(dy);
  DispatchPacks(dy.dtype, "BiasBackward", columns, Aligned(dy.data), [&](auto type, auto pack) {
    using T = decltype(type);
    SumOverRows<pack>(context, "BiasBackward", rows, columns, BiasTerms<T>{Elements<T>(dy), columns},
                      ColumnOutputs<Acc<T>, 1>{{Elements<Acc<T>>(dbias)}}, accumulate);
  });
}

}  // namespace ds::cuda
