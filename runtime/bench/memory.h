// How fast memory is read and written, and moved between host and device.
#pragma once

#include "runtime/bench/timer.h"
#include "runtime/plan/machine_file.h"

namespace ds {

struct CopyRate {
  double bytes_per_second = 0;  ///< read plus written; 0: not measured, there is no memory to do it with
  int64_t bytes = 0;            ///< of each of the two arrays
};

/// A copy from one array to another of the same device, by all of its threads: what kernels that move memory are held
/// against.
CopyRate MeasureCopy(BenchDevice& device, double seconds);

struct HostLink {
  LinkRate rate;          ///< fitted to copies of several sizes
  double large_copy = 0;  ///< bytes a second of the largest
  int64_t largest = 0;    ///< its size
};

/// Copies between page-locked host memory and a GPU. Throws std::logic_error without one.
HostLink MeasureHostLink(BenchDevice& device, bool to_device, double seconds);

}  // namespace ds
