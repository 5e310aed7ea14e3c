#include "runtime/train/peak_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ds {
namespace {

/// The value of a "Key:  123 kB" line of a file of /proc, in bytes; 0 when it is not there.
int64_t ProcBytes(const char* path, const char* key) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "r"), std::fclose);
  if (!file) return 0;
  char line[256];
  const size_t length = std::strlen(key);
  while (std::fgets(line, sizeof line, file.get())) {
    long long kilobytes = 0;
    if (std::strncmp(line, key, length) == 0 && std::sscanf(line + length, " %lld", &kilobytes) == 1)
      return static_cast<int64_t>(kilobytes) * 1024;
  }
  return 0;
}

}  // namespace

PeakMemory::PeakMemory() {
  // "5" sets VmHWM back to the present size (proc(5)); where that is not allowed, the peak counts from process start.
  if (FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", file);
    std::fclose(file);
  }
  baseline_ = ProcBytes("/proc/self/status", "VmRSS:");
}

int64_t PeakMemory::Bytes() const { return std::max<int64_t>(0, ProcBytes("/proc/self/status", "VmHWM:") - baseline_); }

int64_t AvailableMemory() { return ProcBytes("/proc/meminfo", "MemAvailable:"); }

}  // namespace ds
