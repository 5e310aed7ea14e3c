#include "runtime/bench/peaks.h"

#include <array>
#include <string_view>

namespace ds {
namespace {

struct Known {
  std::string_view begins;  ///< the name, or how it begins: the first that fits
  double bf16, f32, f64;    ///< TFLOP/s
  double memory;            ///< GB/s
  double nvlink;            ///< GB/s in one direction; 0: its hosts differ
};

// NVIDIA's data sheets: dense (without sparsity) BF16 and FP16 tensor cores, FP32, FP64 tensor cores, memory; NVLink of
// the modules for boards of 4 and 8, half of what the sheets give for both directions.
constexpr std::array kKnown = {
    Known{"NVIDIA H200 NVL", 835.5, 60, 60, 4800, 0},
    Known{"NVIDIA H200", 989.4, 67, 67, 4800, 450},
    Known{"NVIDIA H100 NVL", 835.5, 60, 60, 3900, 0},
    Known{"NVIDIA H100 PCIe", 756, 51, 51, 2000, 0},
    Known{"NVIDIA H100 80GB HBM3", 989.4, 67, 67, 3350, 450},
    Known{"NVIDIA A100-SXM4-40GB", 312, 19.5, 19.5, 1555, 300},
    Known{"NVIDIA A100-PCIE-40GB", 312, 19.5, 19.5, 1555, 0},
    Known{"NVIDIA A100-SXM4-80GB", 312, 19.5, 19.5, 2039, 300},
    Known{"NVIDIA A100 80GB PCIe", 312, 19.5, 19.5, 1935, 0},
};

}  // namespace

DevicePeaks KnownGpuPeaks(const std::string& name) {
  for (const Known& known : kKnown) {
    if (!std::string_view(name).starts_with(known.begins)) continue;
    DevicePeaks peaks;
    peaks.flops[DType::bf16] = peaks.flops[DType::f16] = known.bf16 * 1e12;
    peaks.flops[DType::f32] = known.f32 * 1e12;
    peaks.flops[DType::f64] = known.f64 * 1e12;
    peaks.memory_bytes = known.memory * 1e9;
    peaks.link_bytes = known.nvlink * 1e9;
    return peaks;
  }
  return {};
}

}  // namespace ds
