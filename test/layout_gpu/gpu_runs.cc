#include "test/layout_gpu/gpu_runs.h"

#include <cstdio>
#include <memory>
#include <string>

#include "kernels/gpu.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/comm/store.h"
#include "test/catch.h"

namespace ds::test {

std::string WhyNot() { return GpuCount() > 0 ? "" : "no GPU that CUDA can use"; }

}  // namespace ds::test

namespace ds::layout_test {

bool HasGpus(int ranks) {
  if (GpuCount() >= ranks) return true;
  std::printf("left out: needs %d GPUs, this machine has %d\n", ranks, GpuCount());
  return false;
}

RunOptions OnGpus(int ranks) {
  REQUIRE(GpuCount() >= ranks);
  RunOptions options{.ranks = ranks};
  options.gpu = [](int rank) { return OpenGpu(rank); };
  auto store = std::make_shared<MemoryStore>();
  options.gpu_communicators = [store, ranks](int rank) {
    NcclOptions nccl;
    nccl.rank = rank, nccl.size = ranks, nccl.device = rank;
    nccl.timeout = std::chrono::minutes(1);
    return NcclFactory(nccl, *store);
  };
  return options;
}

}  // namespace ds::layout_test
