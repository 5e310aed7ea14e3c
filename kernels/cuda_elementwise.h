// Launches of elementwise kernels. Internal to the GPU kernels.
#pragma once

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"

namespace ds::cuda {

constexpr int kElementwiseThreads = 256;
constexpr int kElementsPerThread = 8;

/// A thread does N elements together, those at the end one by one.
template <int N, class Operation>
__global__ void __launch_bounds__(kElementwiseThreads) ElementwiseKernel(int64_t n, Operation operation) {
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kElementwiseThreads + threadIdx.x) * N;
  if (i + N <= n)
    operation.template Apply<N>(i);
  else
    for (; i < n; ++i) operation.template Apply<1>(i);
}

/// Runs operation.Apply<N>(i), which does elements [i, i + N), over [0, n). `aligned`: every array starts at a multiple
/// of 16 bytes, so that N may be more than 1.
template <class Operation>
void ForEachElement(const KernelContext& context, const char* kernel, int64_t n, bool aligned,
                    const Operation& operation) {
  if (n == 0) return;
  const int64_t per_block = int64_t{kElementwiseThreads} * (aligned ? kElementsPerThread : 1);
  const auto blocks = static_cast<unsigned>((n + per_block - 1) / per_block);
  if (aligned)
    ElementwiseKernel<kElementsPerThread><<<blocks, kElementwiseThreads, 0, Stream(context)>>>(n, operation);
  else
    ElementwiseKernel<1><<<blocks, kElementwiseThreads, 0, Stream(context)>>>(n, operation);
  CheckLaunch(kernel);
}

}  // namespace ds::cuda
