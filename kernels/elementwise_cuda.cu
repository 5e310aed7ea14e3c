#include <cmath>

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
    const T element = Converted<T>(value);
    Pack<T, N> values;
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = element;
    StoreRaw(x + i, values);
  }
};

/// As Converted, but NaN between fp32 and 16 bits keeps sign and fraction, as on the CPU.
template <class To, class From>
__device__ To CastOne(From x) {
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, __nv_bfloat16>) {
    const uint32_t bits = __float_as_uint(x);
    return x == x ? Converted<To>(x) : __ushort_as_bfloat16(static_cast<unsigned short>(bits >> 16 | 0x40u));
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, __half>) {
    const uint32_t bits = __float_as_uint(x), nan = (bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu);
    return x == x ? Converted<To>(x) : __ushort_as_half(static_cast<unsigned short>(nan));
  } else if constexpr (std::is_same_v<From, __half> && std::is_same_v<To, float>) {
    const uint32_t bits = __half_as_ushort(x);
    return (bits & 0x7fffu) > 0x7c00u ? __uint_as_float((bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13)
                                      : ToFloat(x);
  } else if constexpr (sizeof(From) == 2 && sizeof(To) == 2 && !std::is_same_v<From, To>) {
    return CastOne<To>(CastOne<float>(x));
  } else {
    return Converted<To>(x);
  }
}

template <class From, class To>
struct CastElements {
  const From* from;
  To* to;
  template <int N>
  __device__ void Apply(int64_t i) const {
    const Pack<From, N> in = LoadRaw<N>(from + i);
    Pack<To, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out[k] = CastOne<To>(in[k]);
    StoreRaw(to + i, out);
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
  static constexpr int kColumnBytes = sizeof(T);
  template <int N>
  using Row = Pack<T, N>;
  const T* dy;
  int64_t columns;
  template <int N>
  __device__ Row<N> Load(int64_t row, int64_t column) const {
    return LoadRaw<N>(dy + row * columns + column);
  }
  template <int N>
  __device__ void Add(const Row<N>& row, Acc<T> (&sums)[1][N]) const {
    const Pack<Acc<T>, N> d = ConvertPack<Acc<T>>(row);
#pragma unroll
    for (int i = 0; i < N; ++i) sums[0][i] += d[i];
  }
};

}  // namespace

void Fill(const KernelContext& context, Tensor x, double value) {
  if (x.numel() > 0 && value == 0 && !std::signbit(value))  // the most frequent fill, and the driver's is the fastest
    return CheckCuda(cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), Stream(context)), "cudaMemsetAsync");
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
