// What NVIDIA's management library says of this machine's GPUs. It is opened if it is there: no header or library is
// needed to build, and no CUDA context comes into being.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ds {

struct GpuFacts {
  int index = 0;  ///< on the machine, in the order of PCI addresses; of an instance its GPU's
  std::string name, uuid;
  std::string pci;                           ///< "0000:17:00.0"; empty where the driver does not tell
  bool instance = false;                     ///< a part of a divided GPU (MIG): a process can compute on one of them
  std::string compute_capability;            ///< "9.0"; empty where the driver does not tell
  int64_t memory = 0;                        ///< bytes of the device, with what the driver keeps for itself
  int64_t memory_used = 0, memory_free = 0;  ///< the rest: what programs use, and what is left to them
};

/// The GPUs, and instances of divided ones, that CUDA_VISIBLE_DEVICES leaves (visible_gpus.h says how), in its order.
/// Empty where there is no driver.
std::vector<GpuFacts> VisibleGpus();

/// The library's name; in tests another one, by $DS_NVML_LIBRARY.
std::string NvmlLibrary();

/// Version of the driver; empty where there is none.
std::string GpuDriverVersion();
/// The newest CUDA that it runs: "12.4"; empty where there is none.
std::string GpuCudaVersion();

}  // namespace ds
