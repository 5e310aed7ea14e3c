#include "kernels/cuda_elementwise.h"
#include "kernels/finite.h"

namespace ds::cuda {
namespace {

/// Infinities and NaN are the values whose exponent bits are all ones.
template <class Bits>
struct FindExponent {
  const Bits* x;
  Bits exponent;
  unsigned long long* first;
  template <int N>
  __device__ void Apply(int64_t i) const {
    const Pack<Bits, N> bits = LoadRaw<N>(x + i);
    bool any = false;
#pragma unroll
    for (int k = 0; k < N; ++k) any |= (bits[k] & exponent) == exponent;
    if (!any) return;
    for (int k = 0; k < N; ++k)
      if ((x[i + k] & exponent) == exponent) {
        atomicMin(first, static_cast<unsigned long long>(i + k));  // the smallest, whoever comes first
        return;
      }
  }
};

template <class Bits>
void Find(const KernelContext& context, const Tensor& x, Bits exponent, const Tensor& first) {
  CheckCuda(cudaMemsetAsync(first.data, 0xff, sizeof(int64_t), Stream(context)), "cudaMemsetAsync");  // -1
  ForEachElement(context, "FindNonFinite", x.numel(), Aligned(x.data),
                 FindExponent<Bits>{Elements<Bits>(x), exponent, Elements<unsigned long long>(first)});
}

}  // namespace

void FindNonFinite(const KernelContext& context, Tensor x, Tensor first) {
  switch (x.dtype) {
    case DType::f64:
      return Find<uint64_t>(context, x, 0x7FF0'0000'0000'0000, first);
    case DType::f32:
      return Find<uint32_t>(context, x, 0x7F80'0000, first);
    case DType::bf16:
      return Find<uint16_t>(context, x, 0x7F80, first);
    default:
      return Find<uint16_t>(context, x, 0x7C00, first);
  }
}

}  // namespace ds::cuda
