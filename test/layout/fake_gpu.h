// A GPU that is none: its memory is the host's and whatever is enqueued is done at once. GpuExecutor runs on it with
// the CPU's kernels, so that what it enqueues, and in which order, is tested where there is no GPU.
#pragma once

#include <memory>

#include "kernels/gpu.h"

namespace ds::layout_test {

/// Throws std::logic_error on what a real GPU would hang or fail at: waiting for an event that was never recorded,
/// memory that is not freed, and the like.
///
/// `device`: what it calls itself. Kernels compute tensors of a CPU alone.
std::unique_ptr<Gpu> MakeFakeGpu(Device device = {});

/// Bytes that were asked of a fake GPU and not yet given back, and the most at once.
struct FakeMemory {
  int64_t total = int64_t{1} << 40;  ///< that the device says it has
  int64_t device = 0, host = 0;
  int64_t most = 0, most_host = 0;
};
/// The same, counting into `memory`, which outlives the GPU. May be null.
std::unique_ptr<Gpu> MakeFakeGpu(FakeMemory* memory, bool multiplies_fp8 = true);

}  // namespace ds::layout_test
