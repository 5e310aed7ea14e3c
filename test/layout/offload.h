// Jobs whose state is kept below the device.
#pragma once

#include <filesystem>
#include <string>

#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {

struct Offload {
  OffloadTarget optimizer = OffloadTarget::none, param = OffloadTarget::none, activations = OffloadTarget::none;
  double ratio = 1;
};

inline constexpr OffloadTarget kNone = OffloadTarget::none, kCpu = OffloadTarget::cpu, kNvme = OffloadTarget::nvme;

/// The job with its state there; files in two new folders.
inline JobSpec With(JobSpec spec, const Offload& offload) {
  spec.zero.offload_optimizer = offload.optimizer;
  spec.zero.offload_param = offload.param;
  spec.zero.offload_ratio = offload.ratio;
  spec.memory.offload_activations = offload.activations;
  spec.memory.nvme_path = {NewDirectory(), NewDirectory()};
  for (const std::string& folder : spec.memory.nvme_path) std::filesystem::create_directories(folder);
  return spec;
}

inline RunOptions OnFakeGpus(int ranks) {
  RunOptions options{.ranks = ranks};
  options.gpu = [](int) { return MakeFakeGpu(); };
  return options;
}

}  // namespace ds::layout_test
