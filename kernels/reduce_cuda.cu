#include "kernels/reduce.h"

#include "kernels/cuda_elementwise.h"

namespace ds::cuda {
namespace {

constexpr int kFewParts = 16, kManyParts = 1024;

template <class T, int kMaxParts>
struct SumParts {
  const T* parts[kMaxParts];
  int count;
  T* out;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> sum = Load<N>(parts[0] + i);
#pragma unroll 4
    for (int p = 1; p < count; ++p) {
      const Pack<Acc<T>, N> part = Load<N>(parts[p] + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += part[k];
    }
    Store(out + i, sum);
  }
};

template <class T, int kMaxParts>
void Sum(const KernelContext& context, std::span<const Tensor> parts, const Tensor& out) {
  SumParts<T, kMaxParts> sum;
  bool aligned = Aligned(out.data);
  sum.count = static_cast<int>(parts.size());
  sum.out = Elements<T>(out);
  for (size_t p = 0; p < parts.size(); ++p) {
    sum.parts[p] = Elements<T>(parts[p]);
    aligned = aligned && Aligned(parts[p].data);
  }
  ForEachElement(context, "SumInOrder", out.numel(), aligned, sum);
}

}  // namespace

void SumInOrder(const KernelContext& context, std::span<const Tensor> parts, Tensor out) {
  detail::Check(parts.size() <= kManyParts, "SumInOrder",
                std::to_string(parts.size()) + " parts on a GPU, at most " + std::to_string(kManyParts) + " are done");
  DispatchFloating(out.dtype, "SumInOrder", [&](auto type) {
    using T = decltype(type);
    if (parts.size() <= kFewParts)
      Sum<T, kFewParts>(context, parts, out);
    else
      Sum<T, kManyParts>(context, parts, out);
  });
}

}  // namespace ds::cuda
