// Launches of kernels that use dynamic shared memory. Internal to the GPU kernels, for nvcc alone.
#pragma once

#include "kernels/cuda_check.h"

namespace ds::cuda {

/// Lets a kernel use `bytes` of dynamic shared memory and launches it.
template <class... Parameters, class... Arguments>
void LaunchWithShared(const char* name, void (*kernel)(Parameters...), unsigned blocks, int threads, int bytes,
                      cudaStream_t stream, const Arguments&... arguments) {
  CheckCuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<size_t>(bytes), stream>>>(arguments...);
  CheckLaunch(name);
}

}  // namespace ds::cuda
