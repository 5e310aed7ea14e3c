// NVIDIA's management library as a test wants it ($DS_NVML_LIBRARY): GPUs by the text of $DS_TEST_NVML, one an entry:
//   GPU[;GPU]..., GPU = KEY=NUMBER[,KEY=NUMBER]...; `-` for a GPU that lacks nothing
//   lost=1 reset=1 ecc=N retired=1 remap=1 remap_failed=1 persistence=0|1 mode=0..3 mig=1 pid=N held=BYTES
//   throttle=BITS
// and `init=N` alone for a library that does not begin (18: versions differ).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

std::vector<std::string> Gpus() {
  const char* text = std::getenv("DS_TEST_NVML");
  std::vector<std::string> gpus;
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    const size_t end = rest.find(';');
    gpus.push_back(rest.substr(0, end));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return gpus;
}

unsigned long long Of(const std::string& gpu, const std::string& key, unsigned long long otherwise = 0) {
  const std::string all = "," + gpu, wanted = "," + key + "=";
  const size_t place = all.find(wanted);
  return place == std::string::npos ? otherwise : std::strtoull(all.c_str() + place + wanted.size(), nullptr, 0);
}

/// A handle is the GPU's number plus 1.
std::string At(void* device) { return Gpus().at(reinterpret_cast<uintptr_t>(device) - 1); }

}  // namespace

extern "C" {
int nvmlInit_v2() { return Gpus().empty() ? 0 : static_cast<int>(Of(Gpus()[0], "init")); }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::snprintf(text, size, "999.1") < 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 12040, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = static_cast<unsigned>(Gpus().size()), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= Gpus().size()) return 2;
  if (Of(Gpus()[index], "lost")) return 15;
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) { return std::snprintf(text, size, "Fake GPU") < 0; }
int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  return std::snprintf(text, size, "GPU-fake-%zu", reinterpret_cast<uintptr_t>(device)) < 0;
}
struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
  memory->total = 80ull << 30;
  memory->reserved = memory->used = 0;
  memory->free = 80ull << 30;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* errors) {
  return *errors = type == 1 && counter == 0 ? Of(At(device), "ecc") : 0, 0;
}
int nvmlDeviceGetRetiredPagesPendingStatus(void* device, unsigned* pending) {
  return *pending = static_cast<unsigned>(Of(At(device), "retired")), 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  *corrected = *uncorrected = 0;
  *pending = static_cast<unsigned>(Of(At(device), "remap"));
  *failed = static_cast<unsigned>(Of(At(device), "remap_failed"));
  return 0;
}
int nvmlDeviceGetPersistenceMode(void* device, unsigned* mode) {
  if (Of(At(device), "reset")) return 16;
  return *mode = static_cast<unsigned>(Of(At(device), "persistence", 1)), 0;
}
int nvmlDeviceGetComputeMode(void* device, unsigned* mode) {
  return *mode = static_cast<unsigned>(Of(At(device), "mode")), 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* pending) {
  return *pending = *now = static_cast<unsigned>(Of(At(device), "mig")), 0;
}
struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const auto pid = static_cast<unsigned>(Of(At(device), "pid"));
  *count = pid != 0;
  if (pid != 0) processes[0] = {pid, Of(At(device), "held"), 0, 0};
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  return *reasons = Of(At(device), "throttle"), 0;
}
}
