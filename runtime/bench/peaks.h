// What a device can do at most: as its maker says, or as the simplest loop does it.
#pragma once

#include <map>
#include <string>

#include "kernels/dtype.h"

namespace ds {

struct DevicePeaks {
  std::map<DType, double> flops;  ///< a second, of dense matrix products; what is not known is absent
  double memory_bytes = 0;        ///< a second; 0: not known
  double link_bytes = 0;          ///< a second to other GPUs of the host, in one direction; 0: not known
};

/// NVIDIA's data sheets, by the name that the driver tells. fp32 without TF32, as our products are; fp64 by tensor
/// cores where the GPU has them. Nothing where the GPU is not known here.
DevicePeaks KnownGpuPeaks(const std::string& name);

/// Fused multiply-adds a second, times two, that so many threads of this CPU reach on registers alone, in its widest
/// vectors: what no product in that dtype (f32, f64) can exceed. 0 where this is no x86 CPU with AVX2. Takes about
/// `seconds`.
double CpuFmaFlops(DType dtype, int threads, double seconds);

}  // namespace ds
