// Whether a machine file is of the machine that a job runs on, and what a device can do at most.
#pragma once

#include <optional>
#include <string>

#include "runtime/plan/machine_file.h"

namespace ds {

/// What is told when the file is of another device than the job's, of this kind and name: what is not used of it, and
/// why. Empty: it is of that device.
std::string MachineMismatch(const MachineFile& file, DeviceKind device, const std::string& name);

/// Why the file's algorithms of matrix products do not apply to a GPU of this name in a program with that version of
/// the library; empty: they do, or the file has none.
std::string ChoicesMismatch(const MachineFile& file, const std::string& gpu_name, int64_t library_version);

/// Whether the file is of GPUs that have no 8-bit products (training.fp8): of a compute capability below 8.9. False
/// where it does not tell.
bool LacksFp8(const MachineFile& file);

/// Dense matrix products' most operations a second on one device: the file's where it is of the device and has the
/// dtype, else the maker's number where the GPU is a known one, else nullopt.
std::optional<double> PeakFlops(const std::optional<MachineFile>& file, DeviceKind device, const std::string& name,
                                DType dtype);

}  // namespace ds
