// A library in the place of NVIDIA's management library (DS_NVML_LIBRARY): GPUs that are not there. DS_FAKE_GPUS lists
// them, separated by blanks: PCI address (00000000:17:00.0), then the UUIDs of its instances behind slashes where it is
// divided. GPU number i has the UUID GPU-fake-i.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Device {
  std::string uuid;
  unsigned domain = 0, bus = 0;
  std::vector<Device> instances;
};

/// Of DS_FAKE_GPUS. Made once: as NVIDIA's library does, this one serves several threads, each with its own nvmlInit.
std::vector<Device> DevicesOfEnvironment() {
  std::vector<Device> devices;
  const char* list = std::getenv("DS_FAKE_GPUS");
  std::istringstream words(list ? list : "");
  for (std::string word; words >> word;) {
    Device device{"GPU-fake-" + std::to_string(devices.size()), 0, 0, {}};
    std::sscanf(word.c_str(), "%x:%x", &device.domain, &device.bus);
    for (size_t at = word.find('/'); at != std::string::npos;) {
      const size_t end = word.find('/', at + 1);
      device.instances.push_back({word.substr(at + 1, end == std::string::npos ? end : end - at - 1), 0, 0, {}});
      at = end;
    }
    devices.push_back(device);
  }
  return devices;
}
std::vector<Device> devices = DevicesOfEnvironment();

struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Pci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

int Copy(const std::string& text, char* out, unsigned size) {
  std::snprintf(out, size, "%s", text.c_str());
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* out, unsigned size) { return Copy("999.1", out, size); }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= devices.size()) return 2;
  *device = &devices[index];
  return 0;
}
int nvmlDeviceGetName(void*, char* out, unsigned size) { return Copy("Fake GPU", out, size); }
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  return Copy(static_cast<Device*>(device)->uuid, out, size);
}
int nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
  memory->total = memory->free = 1ull << 34;
  memory->used = memory->reserved = 0;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  std::memset(pci, 0, sizeof *pci);
  pci->domain = static_cast<Device*>(device)->domain;
  pci->bus = static_cast<Device*>(device)->bus;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  *current = *pending = static_cast<Device*>(device)->instances.empty() ? 0 : 1;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void* device, unsigned* count) {
  *count = static_cast<unsigned>(static_cast<Device*>(device)->instances.size());
  return 0;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** instance) {
  *instance = &static_cast<Device*>(device)->instances[index];
  return 0;
}

}  // extern "C"
