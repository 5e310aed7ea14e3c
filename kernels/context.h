// What every kernel call is given besides its tensors.
#pragma once

#include <cstdint>

namespace ds {

/// How a kernel may run. Results never depend on `threads`.
///
/// On a GPU a kernel enqueues its work on `stream` and returns: tensors and workspace are its own until the stream has
/// come past it, and the host waits for nothing. Calls on one stream may share one workspace.
struct KernelContext {
  int threads = 1;              ///< CPU threads a kernel may use (OpenMP, static schedules)
  void* stream = nullptr;       ///< cudaStream_t of the current device, which the tensors are on; unused on the CPU
  void* workspace = nullptr;    ///< memory of that device, aligned to 256 bytes (workspace.h: how much a kernel needs)
  int64_t workspace_bytes = 0;  ///< its size
  bool deterministic = true;    ///< the same bits in every run; otherwise a GPU kernel may sum in any order
};

}  // namespace ds
