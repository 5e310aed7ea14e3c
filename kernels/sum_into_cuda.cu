#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/reduce.h"

namespace ds::cuda {
namespace {

constexpr int kParts = 1024;  ///< part of the contract in reduce.h: it fixes the order of the sum

template <class T>
__global__ void __launch_bounds__(kParts) SumIntoKernel(int64_t n, const T* x, double* sum) {
  __shared__ double parts[kParts];
  double part = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kParts) part += static_cast<double>(x[i]);
  parts[threadIdx.x] = part;
  for (int half = kParts / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *sum = parts[0];
}

}  // namespace

void SumInto(const KernelContext& context, Tensor x, Tensor sum) {
  const auto launch = [&](auto type) {
    SumIntoKernel<<<1, kParts, 0, Stream(context)>>>(x.numel(), Elements<decltype(type)>(x), Elements<double>(sum));
    CheckLaunch("SumInto");
  };
  if (x.dtype == DType::f64)
    launch(double{});
  else
    launch(float{});
}

}  // namespace ds::cuda
