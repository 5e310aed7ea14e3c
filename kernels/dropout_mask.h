// The factor that dropout multiplies an element by. Internal to the CPU kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/check.h"
#include "kernels/random.h"

namespace ds::detail {

/// Dropout with probability p: an element whose random number is below the threshold becomes 0, the others are scaled.
struct DropoutRule {
  uint32_t threshold;
  double scale;
};

inline DropoutRule MakeDropoutRule(const char* kernel, float p) {
  Check(p >= 0 && p < 1, kernel, "dropout probability " + std::to_string(p) + " is outside [0, 1)");
  return {static_cast<uint32_t>(std::ceil(static_cast<double>(p) * 0x1p32)), 1.0 / (1.0 - static_cast<double>(p))};
}

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
