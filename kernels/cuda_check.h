// Calls of the CUDA runtime and their errors. Internal to the GPU kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "kernels/context.h"

namespace ds::cuda {

/// Throws std::runtime_error("CALL: what CUDA says (its name)") unless status is success.
inline void CheckCuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
                           ")");
}

/// After a launch. An error may also come from work that was enqueued before it.
inline void CheckLaunch(const char* kernel) { CheckCuda(cudaGetLastError(), kernel); }

inline cudaStream_t Stream(const KernelContext& context) { return static_cast<cudaStream_t>(context.stream); }

/// The context's workspace as T[], of at least `bytes` bytes. Throws std::invalid_argument when it is smaller.
template <class T>
T* Workspace(const KernelContext& context, const char* kernel, int64_t bytes) {
  if (context.workspace_bytes < bytes)
    throw std::invalid_argument(std::string(kernel) + ": needs a workspace of " + std::to_string(bytes) +
                                " bytes, has " + std::to_string(context.workspace_bytes));
  return static_cast<T*>(context.workspace);
}

}  // namespace ds::cuda
