// Kernels whose time is that of moving memory: norms, activations, the loss, sums, the optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/bench/timer.h"
#include "runtime/bench/work.h"

namespace ds {

struct RowKernel {
  std::string what, shape;
  int64_t bytes = 0;  ///< that a run must read and write
  /// Allocates what it needs on the device, times the kernel for about that many seconds, returns those of one run.
  std::function<double(BenchDevice&, double seconds)> time;
};

/// Those of the model's training, each over as many rows of the model's widths as exceed a device's caches.
std::vector<RowKernel> RowKernelsOf(const BenchWork& work, DeviceKind device);

/// Workspace that they want on a GPU.
int64_t RowKernelWorkspace(const BenchWork& work);

}  // namespace ds
