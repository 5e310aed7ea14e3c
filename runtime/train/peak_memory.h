// The memory that a job takes of its process, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ds {

class PeakMemory {
 public:
  /// Takes the resident size now as the baseline, and resets the process's high-water mark to it where allowed.
  PeakMemory();
  /// Bytes of the highest resident size since then (VmHWM), less the baseline.
  int64_t Bytes() const;

 private:
  int64_t baseline_ = 0;
};

/// MemAvailable of this machine in bytes; 0 when unknown.
int64_t AvailableMemory();

}  // namespace ds
