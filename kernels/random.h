// Counter-based random numbers (Salmon et al. 2011, Philox 4x32-10): the value at an index depends on (seed, site,
// index) alone, so weights and dropout masks do not depend on how the model is sharded or on the thread count.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// One block of Philox 4x32-10.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Names a stream of random numbers. Element i of a stream is a pure function of (seed, site, i).
struct RandomStream {
  uint64_t seed = 0;
  uint64_t site = 0;  ///< what the numbers are for: a parameter, or (step, layer, place of a dropout)
};

/// out[i] = mean + stddev * normal(stream, first + i), Box-Muller on Philox; out is f32.
void FillNormal(const KernelContext& context, RandomStream stream, uint64_t first, float mean, float stddev, Tensor out);

}  // namespace ds
