// What dropout does to an element, given its random number. Internal to kernels/.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/check.h"

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

}  // namespace ds::detail
