#include "runtime/comm/nccl/comm_stream.h"

#include <stdexcept>

#include "kernels/cuda_check.h"

namespace ds {

using cuda::CheckCuda;

CommStream::CommStream() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  CheckCuda(cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, 12000, cudaEnableDefault, &found),
            "cudaGetDriverEntryPointByVersion");
#else
  CheckCuda(cudaGetDriverEntryPoint("cuStreamWriteValue32", &function, cudaEnableDefault, &found),
            "cudaGetDriverEntryPoint");
#endif
  if (!function || found != cudaDriverEntryPointSuccess)
    throw std::runtime_error("the NVIDIA driver has no cuStreamWriteValue32; it must be of CUDA 12 or newer");
  write_value_ = reinterpret_cast<WriteValue>(function);
  try {
    CheckCuda(cudaHostAlloc(reinterpret_cast<void**>(&count_), sizeof *count_, cudaHostAllocMapped), "cudaHostAlloc");
    *count_ = 0;
    CheckCuda(cudaMalloc(reinterpret_cast<void**>(&scratch_), sizeof *scratch_), "cudaMalloc");
    int least = 0, greatest = 0;
    CheckCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
    CheckCuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
    CheckCuda(cudaMemsetAsync(scratch_, 0, sizeof *scratch_, stream_), "cudaMemsetAsync");
  } catch (...) {
    Free();
    throw;
  }
}

CommStream::~CommStream() {
  if (!leaked_) Free();
}

void CommStream::Free() {
  if (stream_) cudaStreamDestroy(stream_);
  cudaFree(scratch_);
  cudaFreeHost(count_);
}

void CommStream::Mark(uint32_t number) {
  // Unified addressing: pinned host memory has one address everywhere.
  CheckCuda(static_cast<cudaError_t>(write_value_(stream_, reinterpret_cast<uintptr_t>(count_), number, 0)),
            "cuStreamWriteValue32");
}

}  // namespace ds
