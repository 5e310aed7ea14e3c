// Counter-based random numbers (Salmon et al. 2011, Philox 4x32-10): the value at an index depends on (seed, site,
// index) alone, so weights and dropout masks do not depend on how the model is sharded or on the thread count.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// One block of Philox 4x32-10.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Names a stream of random numbers. Element i of a stream is a pure function of (seed, site, i): word i mod 4 of the
/// Philox block with counter {i / 4 (low, high half), site (low, high half)} and key {seed (low, high half)}.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t site = 0;  ///< what the numbers are for: a parameter, or (step, layer, place of a dropout)
};

/// out[i] = number first + i of the stream, uniform over all 32-bit numbers.
void RandomBits(RandomStream stream, uint64_t first, std::span<uint32_t> out);

/// out[i] = mean + stddev * normal(stream, first + i); out is f32. Box-Muller on pairs (u, w) of the stream's numbers
/// 2j, 2j + 1: normals 2j and 2j + 1 are sqrt(-2 ln((u + 1/2) / 2^32)) times cos and sin of 2 pi w / 2^32. Computed in
/// fp32 by fixed sequences of IEEE operations: the same bits on every CPU.
void FillNormal(const KernelContext& context, RandomStream stream, uint64_t first, float mean, float stddev,
                Tensor out);

}  // namespace ds
