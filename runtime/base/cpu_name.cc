#include "runtime/base/cpu_name.h"

#include <sys/utsname.h>

#include <fstream>

namespace ds {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':'), begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && begin != std::string::npos)
      return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  utsname system{};
  ::uname(&system);
  return system.machine;
}

}  // namespace ds
