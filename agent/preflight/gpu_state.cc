// The state of GPUs, by NVIDIA's management library, loaded at run time (NVML API reference). $DS_NVML_LIBRARY is
// another library in its place: tests have one that tells of broken GPUs.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "agent/preflight/preflight.h"
#include "runtime/base/nvml.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Device = void*;

// nvmlReturn_t
constexpr int kSuccess = 0, kDriverNotLoaded = 9, kGpuIsLost = 15, kResetRequired = 16, kVersionMismatch = 18;
constexpr unsigned kProhibited = 2, kExclusiveProcess = 3;  // nvmlComputeMode_t
constexpr int kUncorrected = 1, kVolatile = 0;              // nvmlMemoryErrorType_t, nvmlEccCounterType_t
// nvmlClocksThrottleReasons: what slows a GPU down beyond the limits that it is always held to.
constexpr unsigned long long kHardwareSlowdown = 0x8, kThermal = 0x20 | 0x40, kPowerBrake = 0x80;

struct ProcessInfo {  // nvmlProcessInfo_t
  unsigned pid = 0;
  unsigned long long memory = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};

/// Functions that a library does not have, older ones say, are not asked.
struct Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*ecc)(Device, int type, int counter, unsigned long long*) = nullptr;
  int (*retired_pending)(Device, unsigned*) = nullptr;
  int (*remapped)(Device, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) = nullptr;
  int (*persistence)(Device, unsigned*) = nullptr;
  int (*compute_mode)(Device, unsigned*) = nullptr;
  int (*mig)(Device, unsigned* now, unsigned* pending) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  int (*throttle)(Device, unsigned long long*) = nullptr;

  template <class Function>
  bool Find(Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(handle, symbol));
    return function != nullptr;
  }
  bool Load() {
    handle = ::dlopen(NvmlLibrary().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle || !Find(init, "nvmlInit_v2") || !Find(shutdown, "nvmlShutdown") ||
        !Find(count, "nvmlDeviceGetCount_v2") || !Find(device, "nvmlDeviceGetHandleByIndex_v2"))
      return false;
    Find(ecc, "nvmlDeviceGetTotalEccErrors");
    Find(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
    Find(remapped, "nvmlDeviceGetRemappedRows");
    Find(persistence, "nvmlDeviceGetPersistenceMode");
    Find(compute_mode, "nvmlDeviceGetComputeMode");
    Find(mig, "nvmlDeviceGetMigMode");
    Find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    Find(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons");
    return true;
  }
};

struct Findings {
  std::vector<std::string> failed, warned;
  void Fail(const std::string& text) { failed.push_back(text); }
  void Warn(const std::string& text) { warned.push_back(text); }
};

/// Whether a GPU that has no name any more is among those that the job may use, as far as its number tells.
bool MayBeUsed(unsigned index) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return true;
  std::istringstream entries(visible);
  for (std::string entry; std::getline(entries, entry, ',');)
    if (entry == std::to_string(index)) return true;
  return false;
}

void LookAtMemory(const Library& nvml, Device device, const std::string& gpu, const std::string& reset,
                  Findings& findings) {
  unsigned long long errors = 0;
  if (nvml.ecc && nvml.ecc(device, kUncorrected, kVolatile, &errors) == kSuccess && errors > 0)
    findings.Fail(gpu + " has had " + std::to_string(errors) +
                  " uncorrected memory errors (ECC) since it was reset: " + reset);
  unsigned pending = 0;
  if (nvml.retired_pending && nvml.retired_pending(device, &pending) == kSuccess && pending)
    findings.Fail(gpu + " has memory pages to retire: " + reset);
  unsigned corrected = 0, uncorrected = 0, rows_pending = 0, rows_failed = 0;
  if (nvml.remapped && nvml.remapped(device, &corrected, &uncorrected, &rows_pending, &rows_failed) == kSuccess) {
    if (rows_failed) findings.Fail(gpu + " could not remap a bad memory row: have it replaced");
    if (rows_pending) findings.Fail(gpu + " has memory rows to remap: " + reset);
  }
}

void LookAtUse(const Library& nvml, Device device, const std::string& gpu, Findings& findings) {
  std::vector<ProcessInfo> processes(64);
  auto count = static_cast<unsigned>(processes.size());
  if (!nvml.processes || nvml.processes(device, &count, processes.data()) != kSuccess) count = 0;
  processes.resize(std::min<size_t>(count, processes.size()));
  unsigned mode = 0;
  const bool known = nvml.compute_mode && nvml.compute_mode(device, &mode) == kSuccess;
  if (known && mode == kProhibited)
    findings.Fail(gpu + " lets no program compute (compute mode prohibited): nvidia-smi -c 0 changes it");
  if (processes.empty()) return;
  std::vector<std::string> users;
  unsigned long long bytes = 0;
  for (const ProcessInfo& process : processes) {
    users.push_back(std::to_string(process.pid));
    if (process.memory != ~0ull) bytes += process.memory;
  }
  char gib[32];
  std::snprintf(gib, sizeof gib, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  const std::string text =
      gpu + " is used by other processes (" + Join(users, ", ") + "), which hold " + gib + " of it";
  if (known && mode == kExclusiveProcess)
    findings.Fail(text + ", and its compute mode is exclusive: end them, or nvidia-smi -c 0 changes the mode");
  else
    findings.Warn(text);
}

void LookAtOne(const Library& nvml, unsigned index, Findings& findings) {
  const std::string gpu = "GPU " + std::to_string(index);
  const std::string reset = "reset it (nvidia-smi -r -i " + std::to_string(index) + ") or restart the node";
  Device device = nullptr;
  unsigned persistence = 0;
  int state = nvml.device(index, &device);
  if (state == kSuccess && nvml.persistence) state = nvml.persistence(device, &persistence);
  if (state == kGpuIsLost) return findings.Fail(gpu + " has fallen off the bus: restart the node");
  if (state == kResetRequired) return findings.Fail(gpu + " must be reset before it can be used: " + reset);
  if (!device) return findings.Fail(gpu + " does not answer (NVML error " + std::to_string(state) + "): " + reset);
  LookAtMemory(nvml, device, gpu, reset, findings);
  LookAtUse(nvml, device, gpu, findings);
  unsigned mig = 0, mig_pending = 0;
  if (nvml.mig && nvml.mig(device, &mig, &mig_pending) == kSuccess && mig)
    findings.Warn(gpu + " is divided (MIG is on): slots are its parts, and NCCL has no fast way between them");
  unsigned long long reasons = 0;
  if (nvml.throttle && nvml.throttle(device, &reasons) == kSuccess) {
    if (reasons & kThermal) findings.Warn(gpu + " is slowed down because it is hot");
    if (reasons & kPowerBrake) findings.Warn(gpu + " is slowed down by its power supply");
    if ((reasons & kHardwareSlowdown) && !(reasons & (kThermal | kPowerBrake)))
      findings.Warn(gpu + " is slowed down by its hardware (heat or power)");
  }
}

void Tell(const Findings& findings, pb::NodeFacts::Check& check) {
  std::vector<std::string> all = findings.failed;
  all.insert(all.end(), findings.warned.begin(), findings.warned.end());
  check.set_passed(all.empty());
  check.set_warning(findings.failed.empty() && !all.empty());
  check.set_text(Join(all, "; "));
}

}  // namespace

void LookAtGpuState(const pb::Bootstrap&, pb::NodeFacts&, pb::NodeFacts::Check& check) {
  Library nvml;
  Findings findings;
  const bool module = std::filesystem::exists("/proc/driver/nvidia/version");
  if (!nvml.Load()) {
    if (module)
      findings.Warn("the NVIDIA driver is loaded, and its library " + NvmlLibrary() + " cannot be: no GPU is seen");
    return Tell(findings, check);
  }
  const int began = nvml.init();
  if (began == kVersionMismatch)
    findings.Fail(
        "the NVIDIA driver and its library are of different versions: restart the node, or reload the driver");
  else if (began != kSuccess && began != kDriverNotLoaded)
    findings.Fail("the NVIDIA driver does not answer (NVML error " + std::to_string(began) + ")");
  if (began != kSuccess) return Tell(findings, check);
  std::vector<int> used;
  for (const GpuFacts& gpu : VisibleGpus()) used.push_back(gpu.index);
  unsigned count = 0;
  nvml.count(&count);
  for (unsigned index = 0; index < count; ++index) {
    const bool visible = std::find(used.begin(), used.end(), static_cast<int>(index)) != used.end();
    Device device = nullptr;
    if (visible || (MayBeUsed(index) && nvml.device(index, &device) != kSuccess)) LookAtOne(nvml, index, findings);
  }
  nvml.shutdown();
  Tell(findings, check);
}

}  // namespace ds
