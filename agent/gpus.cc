// NVIDIA's management library through dlopen: the few calls needed, declared here as its documentation gives them
// (NVML API reference, "Initialization and cleanup", "Device queries"), so that no header or library is needed to
// build.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "agent/node_facts.h"
#include "proto/deepshard.pb.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
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
           Find(uuid, "nvmlDeviceGetUUID") && Find(memory, "nvmlDeviceGetMemoryInfo") && init() == 0;
  }
};

/// The GPUs that CUDA_VISIBLE_DEVICES (indices or UUID prefixes) leaves, in its order; as CUDA does, the first entry
/// that names no GPU ends the list.
std::vector<pb::NodeFacts::Gpu> Visible(const std::vector<pb::NodeFacts::Gpu>& all) {
  const char* filter = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!filter) return all;
  std::vector<pb::NodeFacts::Gpu> visible;
  std::istringstream entries(filter);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const pb::NodeFacts::Gpu* found = nullptr;
    for (const auto& gpu : all) {
      if (entry == std::to_string(gpu.index()) || (entry.starts_with("GPU-") && gpu.uuid().starts_with(entry))) {
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

void CollectGpus(pb::NodeFacts& facts) {
  Nvml nvml;
  if (!nvml.Open()) return;  // no library or no driver: no GPUs
  char text[kNameSize] = "";
  if (nvml.driver_version(text, sizeof text) == 0) facts.set_gpu_driver(text);
  unsigned count = 0;
  nvml.count(&count);
  std::vector<pb::NodeFacts::Gpu> all;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    NvmlMemory memory{};
    if (nvml.handle(i, &device) != 0) continue;
    pb::NodeFacts::Gpu gpu;
    gpu.set_index(i);
    if (nvml.name(device, text, sizeof text) == 0) gpu.set_name(text);
    if (nvml.uuid(device, text, sizeof text) == 0) gpu.set_uuid(text);
    if (nvml.memory(device, &memory) == 0) gpu.set_memory(static_cast<int64_t>(memory.total));
    all.push_back(gpu);
  }
  nvml.shutdown();
  for (const auto& gpu : Visible(all)) *facts.add_gpus() = gpu;
}

}  // namespace ds
