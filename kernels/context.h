// What every kernel call is given besides its tensors.
#pragma once

namespace ds {

/// How a kernel may run. Results never depend on `threads`.
struct KernelContext {
  int threads = 1;         ///< CPU threads a kernel may use (OpenMP, static schedules)
  void* stream = nullptr;  ///< CUDA stream; null on the CPU
};

}  // namespace ds
