#include "kernels/elementwise.h"

#include <algorithm>
#include <vector>

#include "kernels/column_sums.h"
#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace ds {

using detail::Acc;
using detail::kColumnsPerSlice;
using detail::kElementsPerBlock;

void Fill(const KernelContext& context, Tensor x, double value) {
  detail::CheckFloating("Fill", "x", x);
  if (detail::RanOnCuda("Fill", cuda::Fill, context, x, value)) return;
  detail::DispatchFloating(x.dtype, "Fill", [&](auto type) {
    using T = decltype(type);
    T element;
    detail::Convert(&value, &element, 1);
    T* out = x.as<T>();
    detail::ParallelBlocks(context, x.numel(), kElementsPerBlock,
                           [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, element); });
  });
}

void Cast(const KernelContext& context, Tensor from, Tensor to) {
  detail::CheckFloating("Cast", "from", from);
  detail::CheckFloating("Cast", "to", to);
  detail::Check(from.numel() == to.numel(), "Cast",
                detail::Describe("from", from) + ", " + detail::Describe("to", to) + ": they differ in size");
  if (detail::RanOnCuda("Cast", cuda::Cast, context, from, to)) return;
  detail::DispatchFloating(from.dtype, "Cast", [&](auto from_type) {
    detail::DispatchFloating(to.dtype, "Cast", [&](auto to_type) {
      const auto* in = from.as<decltype(from_type)>();
      auto* out = to.as<decltype(to_type)>();
      detail::ParallelBlocks(context, from.numel(), kElementsPerBlock, [&](int64_t begin, int64_t end) {
        detail::Convert(in + begin, out + begin, end - begin);
      });
    });
  });
}

void Add(const KernelContext& context, Tensor a, Tensor b, Tensor y) {
  detail::CheckFloating("Add", "a", a);
  detail::CheckVector("Add", "b", b, a.dtype, a.numel());
  detail::CheckVector("Add", "y", y, a.dtype, a.numel());
  if (detail::RanOnCuda("Add", cuda::Add, context, a, b, y)) return;
  detail::DispatchFloating(a.dtype, "Add", [&](auto type) {
    using T = decltype(type);
    const T *left = a.as<T>(), *right = b.as<T>();
    T* out = y.as<T>();
    detail::ParallelBlocks(context, a.numel(), kElementsPerBlock, [&](int64_t begin, int64_t end) {
      Acc<T> left_buffer[kElementsPerBlock], right_buffer[kElementsPerBlock];
      const int64_t n = end - begin;
      const Acc<T>* l = detail::Load(left + begin, left_buffer, n);
      const Acc<T>* r = detail::Load(right + begin, right_buffer, n);
      Acc<T>* sum = detail::StoreTarget(out + begin, left_buffer);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sum[i] = l[i] + r[i];
      detail::Store(sum, out + begin, n);
    });
  });
}

void Scale(const KernelContext& context, Tensor x, double factor) {
  detail::CheckMemory("Scale", "x", x);
  detail::Check(x.dtype == DType::f32 || x.dtype == DType::f64, "Scale",
                detail::Describe("x", x) + ", expected f32 or f64");
  if (detail::RanOnCuda("Scale", cuda::Scale, context, x, factor)) return;
  detail::DispatchFloating(x.dtype, "Scale", [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, Acc<T>>) {
      T* data = x.as<T>();
      const T f = static_cast<T>(factor);
      detail::ParallelBlocks(context, x.numel(), kElementsPerBlock, [&](int64_t begin, int64_t end) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) data[i] *= f;
      });
    }
  });
}

void BiasBackward(const KernelContext& context, Tensor dy, Tensor dbias, bool accumulate) {
  detail::CheckFloating("BiasBackward", "dy", dy);
  const int64_t rows = detail::Rows(dy), columns = detail::Columns(dy);
  detail::CheckVector("BiasBackward", "dbias", dbias, detail::AccumulateType(dy.dtype), columns);
  if (detail::RanOnCuda("BiasBackward", cuda::BiasBackward, context, dy, dbias, accumulate)) return;
  detail::DispatchFloating(dy.dtype, "BiasBackward", [&](auto type) {
    using T = decltype(type);
    const T* in = dy.as<T>();
    detail::SumOverRows<1, Acc<T>>(context, rows, columns, {dbias.as<Acc<T>>()}, accumulate,
                                   [&](int64_t row, int64_t begin, int64_t n, Acc<T>(&sums)[1][kColumnsPerSlice]) {
                                     Acc<T> buffer[kColumnsPerSlice];
                                     const Acc<T>* d = detail::Load(in + row * columns + begin, buffer, n);
#pragma omp simd
                                     for (int64_t j = 0; j < n; ++j) sums[0][j] += d[j];
                                   });
  });
}

}  // namespace ds
