// The few calls needed, declared as NVIDIA's documentation gives them (NVML API reference, "Initialization and
// cleanup", "Device queries").
#include "runtime/base/nvml.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "runtime/base/visible_gpus.h"

namespace ds {
namespace {

using NvmlDevice = void*;
/// nvmlMemory_v2_t: `used` without what the driver keeps for itself.
struct NvmlMemory {
  unsigned version = sizeof(NvmlMemory) | 2u << 24;
  unsigned long long total = 0, reserved = 0, free = 0, used = 0;
};
/// nvmlPciInfo_t
struct NvmlPci {
  char legacy_bus_id[16] = {};
  unsigned domain = 0, bus = 0, device = 0, device_id = 0, subsystem_id = 0;
  char bus_id[32] = {};
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
  int (*pci)(NvmlDevice, NvmlPci*) = nullptr;
  int (*mig_mode)(NvmlDevice, unsigned* current, unsigned* pending) = nullptr;
  int (*most_instances)(NvmlDevice, unsigned*) = nullptr;
  int (*instance)(NvmlDevice, unsigned index, NvmlDevice*) = nullptr;

  template <class Function>
  bool Find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function != nullptr;
  }

  bool Open() {
    library = ::dlopen(NvmlLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
    return library && Find(init, "nvmlInit_v2") && Find(shutdown, "nvmlShutdown") &&
           Find(driver_version, "nvmlSystemGetDriverVersion") && Find(count, "nvmlDeviceGetCount_v2") &&
           Find(handle, "nvmlDeviceGetHandleByIndex_v2") && Find(name, "nvmlDeviceGetName") &&
           Find(uuid, "nvmlDeviceGetUUID") && Find(memory, "nvmlDeviceGetMemoryInfo_v2") && init() == 0;
  }
  void FindFacts() {
    Find(compute_capability, "nvmlDeviceGetCudaComputeCapability");
    Find(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    Find(pci, "nvmlDeviceGetPciInfo_v3");
    Find(mig_mode, "nvmlDeviceGetMigMode");
    Find(most_instances, "nvmlDeviceGetMaxMigDeviceCount");
    Find(instance, "nvmlDeviceGetMigDeviceHandleByIndex");
  }

  GpuFacts FactsOf(NvmlDevice device) const {
    char text[kNameSize] = {};
    NvmlMemory bytes;
    GpuFacts gpu;
    if (name(device, text, sizeof text) == 0) gpu.name = text;
    if (uuid(device, text, sizeof text) == 0) gpu.uuid = text;
    if (memory(device, &bytes) == 0) {
      gpu.memory = static_cast<int64_t>(bytes.total);
      gpu.memory_used = static_cast<int64_t>(bytes.used);
      gpu.memory_free = static_cast<int64_t>(bytes.free);
    }
    return gpu;
  }

  std::string PciOf(NvmlDevice device) const {
    NvmlPci found;
    if (!pci || pci(device, &found) != 0) return "";
    char text[32];
    std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", found.domain, found.bus, found.device);
    return text;
  }

  std::string CapabilityOf(NvmlDevice device) const {
    int major = 0, minor = 0;
    if (!compute_capability || compute_capability(device, &major, &minor) != 0) return "";
    return std::to_string(major) + "." + std::to_string(minor);
  }

  GpuUnit UnitOf(NvmlDevice device) const {
    GpuUnit unit{FactsOf(device), false, {}};
    unit.gpu.pci = PciOf(device);
    unit.gpu.compute_capability = CapabilityOf(device);
    unsigned divided = 0, pending = 0, most = 0;
    if (!mig_mode || !most_instances || !instance || mig_mode(device, &divided, &pending) != 0 || divided == 0)
      return unit;
    unit.divided = true;
    most_instances(device, &most);
    for (unsigned i = 0; i < most; ++i) {
      NvmlDevice part = nullptr;
      if (instance(device, i, &part) != 0) continue;
      GpuFacts facts = FactsOf(part);
      facts.instance = true;
      facts.pci = unit.gpu.pci;
      facts.compute_capability = unit.gpu.compute_capability;
      unit.instances.push_back(std::move(facts));
    }
    return unit;
  }
};

}  // namespace

std::string NvmlLibrary() {
  const char* other = std::getenv("DS_NVML_LIBRARY");
  return other && *other ? other : "libnvidia-ml.so.1";
}

std::vector<GpuFacts> VisibleGpus() {
  Nvml nvml;
  if (!nvml.Open()) return {};
  nvml.FindFacts();
  std::vector<GpuUnit> units;
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    if (nvml.handle(i, &device) != 0) continue;  // not ours (a cgroup), or broken: CUDA does not count it either
    units.push_back(nvml.UnitOf(device));
    units.back().gpu.index = static_cast<int>(units.size()) - 1;
    for (GpuFacts& part : units.back().instances) part.index = units.back().gpu.index;
  }
  nvml.shutdown();
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  return SelectVisible(units, list ? std::optional<std::string_view>(list) : std::nullopt);
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
