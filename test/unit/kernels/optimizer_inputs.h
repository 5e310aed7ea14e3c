// Inputs on which optimizers could differ between devices.
#pragma once

#include <cmath>
#include <random>

#include "test/unit/kernels/support.h"

namespace ds::test {

/// Gradients and states with ordinary, tiny, denormal, zero, negative zero and huge elements.
inline Array OptimizerInput(int64_t count, uint32_t seed, double scale, bool non_negative = false) {
  Array a = Array::Random(DType::f32, {count}, seed, scale);
  std::mt19937 generator(seed + 100);
  for (size_t i = 0; i < a.size(); ++i) {
    double v = a[i];
    switch (generator() % 8) {
      case 0:
        v *= 1e-30;
        break;
      case 1:
        v *= 1e-41 / scale;
        break;  // denormal
      case 2:
        v = 0;
        break;
      case 3:
        v = -0.0;
        break;
      case 4:
        v *= 1e10;
        break;
      default:
        break;
    }
    a.Set(i, non_negative ? std::fabs(v) : v);
  }
  return a;
}

}  // namespace ds::test
