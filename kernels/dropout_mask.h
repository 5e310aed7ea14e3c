// The factor that dropout multiplies an element by. Internal to the CPU kernels.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dropout_rule.h"
#include "kernels/random.h"

namespace ds::detail {

/// factors[i] = scale when number first + i of the stream is at least the threshold, else 0, for n <= kMaxFactors.
constexpr int64_t kMaxFactors = 1024;
template <class A>
void DropoutFactors(const DropoutRule& rule, RandomStream stream, uint64_t first, A* factors, int64_t n) {
  uint32_t bits[kMaxFactors];
  RandomBits(stream, first, std::span<uint32_t>(bits, static_cast<size_t>(n)));
  const A scale = static_cast<A>(rule.scale);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) factors[i] = bits[i] >= rule.threshold ? scale : A(0);
}

}  // namespace ds::detail
