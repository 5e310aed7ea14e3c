#include "runtime/bench/peaks.h"

#include <array>
#include <string_view>

#include "runtime/plan/machine_match.h"

namespace ds {
namespace {

struct Known {
  std::string_view begins;  ///< the name, or how it begins: the first that fits
  double memory;            ///< GB/s
  double nvlink;            ///< GB/s in one direction; 0: its hosts differ
};

// NVIDIA's data sheets; NVLink of the modules for boards of 4 and 8, half of what the sheets give for both directions.
constexpr std::array kKnown = {
    Known{"NVIDIA H200 NVL", 4800, 0},         Known{"NVIDIA H200", 4800, 450},
    Known{"NVIDIA H100 NVL", 3900, 0},         Known{"NVIDIA H100 PCIe", 2000, 0},
    Known{"NVIDIA H100 80GB HBM3", 3350, 450}, Known{"NVIDIA A100-SXM4-40GB", 1555, 300},
    Known{"NVIDIA A100-PCIE-40GB", 1555, 0},   Known{"NVIDIA A100-SXM4-80GB", 2039, 300},
    Known{"NVIDIA A100 80GB PCIe", 1935, 0},
};

}  // namespace

DevicePeaks KnownGpuPeaks(const std::string& name) {
  DevicePeaks peaks;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    if (const auto flops = PeakFlops(std::nullopt, DeviceKind::cuda, name, dtype)) peaks.flops[dtype] = *flops;
  for (const Known& known : kKnown) {
    if (!std::string_view(name).starts_with(known.begins)) continue;
    peaks.memory_bytes = known.memory * 1e9;
    peaks.link_bytes = known.nvlink * 1e9;
    break;
  }
  return peaks;
}

}  // namespace ds
