// The name of this machine's processors.
#pragma once

#include <string>

namespace ds {

/// As /proc/cpuinfo has it ("model name"); where it has none, the architecture ("aarch64").
std::string CpuName();

}  // namespace ds
