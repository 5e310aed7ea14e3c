#include "runtime/plan/machine_match.h"

#include <cstdio>

namespace ds {
namespace {

constexpr double kTera = 1e12;

/// As the makers' data sheets give them, without sparsity: f64 and f32 of the fastest units that keep the dtype (f32:
/// not TF32).
struct KnownGpu {
  const char* name;            ///< as the driver tells it
  double f64, f32, f16, bf16;  ///< 10^12 a second; 0: it has no units for it
};
constexpr KnownGpu kKnownGpus[] = {
    {"NVIDIA H200", 67, 67, 989, 989},
    {"NVIDIA H100 80GB HBM3", 67, 67, 989, 989},
    {"NVIDIA H100 PCIe", 51, 51, 756, 756},
    {"NVIDIA A100-SXM4-40GB", 19.5, 19.5, 312, 312},
    {"NVIDIA A100-SXM4-80GB", 19.5, 19.5, 312, 312},
    {"NVIDIA A100-PCIE-40GB", 19.5, 19.5, 312, 312},
    {"NVIDIA A100 80GB PCIe", 19.5, 19.5, 312, 312},
    {"Tesla V100-SXM2-16GB", 7.8, 15.7, 125, 0},
    {"Tesla V100-SXM2-32GB", 7.8, 15.7, 125, 0},
};

const char* Plural(DeviceKind kind) { return kind == DeviceKind::cuda ? "GPUs" : "CPUs"; }

}  // namespace

bool LacksFp8(const MachineFile& file) {
  int major = 0, minor = 0;
  if (file.device.kind != DeviceKind::cuda ||
      std::sscanf(file.device.compute_capability.c_str(), "%d.%d", &major, &minor) != 2)
    return false;
  return major < 8 || (major == 8 && minor < 9);
}

std::string MachineMismatch(const MachineFile& file, DeviceKind device, const std::string& name) {
  if (file.device.kind != device)
    return std::string("the machine file is of ") + Plural(file.device.kind) + " (" + file.device.name +
           "), and the job computes on " + Plural(device) + ": nothing of it is used; ds-bench measures this machine";
  if (file.device.name != name)
    return "the machine file is of " + file.device.name + ", and the job computes on " + name +
           ": the plan is priced by it, its peaks and algorithms are not used; ds-bench measures this machine";
  return "";
}

std::string ChoicesMismatch(const MachineFile& file, const std::string& gpu_name, int64_t library_version) {
  if (file.matmul_choices.empty()) return "";
  std::string why;
  if (file.device.name != gpu_name)
    why = "they are of " + file.device.name + ", and this is " + gpu_name;
  else if (file.matmul_library_version != library_version)
    why = "they are of version " + std::to_string(file.matmul_library_version) +
          " of the library, and this program has " +
          (library_version == 0 ? std::string("none") : "version " + std::to_string(library_version));
  if (why.empty()) return "";
  return "the machine file's algorithms of matrix products do not apply: " + why +
         "; products take the library's first suggestions";
}

std::optional<double> PeakFlops(const std::optional<MachineFile>& file, DeviceKind device, const std::string& name,
                                DType dtype) {
  if (file && file->device.kind == device && file->device.name == name) {
    const auto peak = file->peak_flops.find(dtype);
    if (peak != file->peak_flops.end()) return peak->second;
  }
  if (device != DeviceKind::cuda) return std::nullopt;
  for (const KnownGpu& gpu : kKnownGpus) {
    if (name != gpu.name) continue;
    const double peak = dtype == DType::f64    ? gpu.f64
                        : dtype == DType::f32  ? gpu.f32
                        : dtype == DType::f16  ? gpu.f16
                        : dtype == DType::bf16 ? gpu.bf16
                                               : 0;
    return peak > 0 ? std::optional(peak * kTera) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ds
