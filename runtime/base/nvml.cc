// The few calls needed, declared as NVIDIA's documentation gives them (NVML API reference, "Initialization and
// cleanup", "Device queries").
#include "runtime/base/nvml.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

namespace ds {
namespace {

using NvmlDevice = void*;
/// nvmlMemory_v2_t: `used` without what the driver keeps for itself.
struct NvmlMemory {
  unsigned version = sizeof(NvmlMemory) | 2u << 24;
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};
constexpr unsigned kNameSize = 96;

struct Nvml {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // Facts that nothing depends on: absent from a library, they are not told.
  int (*compute_capability)(NvmlDevice, int* major, int* minor) = nullptr;
  int (*cuda_version)(int*) = nullptr;  ///< 1000 * major + 10 * minor

  template <class Function>
  bool Find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }

  bool Open() {
    library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return library && Find(init, "nvmlInit_v2") && Find(shutdown, "nvmlShutdown") &&
           Find(driver_version, "nvmlSystemGetDriverVersion") && Find(count, "nvmlDeviceGetCount_v2") &&
           Find(handle, "nvmlDeviceGetHandleByIndex_v2") && Find(name, "nvmlDeviceGetName") &&
           Find(uuid, "nvmlDeviceGetUUID") && Find(memory, "nvmlDeviceGetMemoryInfo_v2") && init() == 0;
  }
  void FindFacts() {
    Find(compute_capability, "nvmlDeviceGetCudaComputeCapability");
    Find(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
  }
};

/// Those that CUDA_VISIBLE_DEVICES leaves.
std::vector<GpuFacts> Visible(const std::vector<GpuFacts>& all) {
  const char* filter = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!filter) return all;
  std::vector<GpuFacts> visible;
  std::istringstream entries(filter);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const GpuFacts* found = nullptr;
    for (const GpuFacts& gpu : all) {
      if (entry == std::to_string(gpu.index) || (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry))) {
        found = &gpu;
        break;
      }
    }
    if (!found) break;
    visible.push_back(*found);
  }
  return visible;
}

}  // namespace

std::vector<GpuFacts> VisibleGpus() {
  Nvml nvml;
  if (!nvml.Open()) return {};
  nvml.FindFacts();
  std::vector<GpuFacts> all;
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (nvml.handle(i, &device) != 0) continue;
    char text[kNameSize] = {};
    NvmlMemory memory;
    GpuFacts gpu;
    gpu.index = static_cast<int>(i);
    if (nvml.name(device, text, sizeof text) == 0) gpu.name = text;
    if (nvml.uuid(device, text, sizeof text) == 0) gpu.uuid = text;
    if (nvml.memory(device, &memory) == 0) {
      gpu.memory = static_cast<int64_t>(memory.total);
      gpu.memory_used = static_cast<int64_t>(memory.used);
      gpu.memory_free = static_cast<int64_t>(memory.free);
    }
    int major = 0, minor = 0;
    if (nvml.compute_capability && nvml.compute_capability(device, &major, &minor) == 0)
      gpu.compute_capability = std::to_string(major) + "." + std::to_string(minor);
    all.push_back(gpu);
  }
  nvml.shutdown();
  return Visible(all);
}

std::string GpuDriverVersion() {
  Nvml nvml;
  char text[kNameSize] = {};
  if (!nvml.Open()) return "";
  const bool known = nvml.driver_version(text, sizeof text) == 0;
  nvml.shutdown();
  return known ? text : "";
}

std::string GpuCudaVersion() {
  Nvml nvml;
  if (!nvml.Open()) return "";
  nvml.FindFacts();
  int version = 0;
  const bool known = nvml.cuda_version && nvml.cuda_version(&version) == 0;
  nvml.shutdown();
  return known ? std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) : "";
}

}  // namespace ds
