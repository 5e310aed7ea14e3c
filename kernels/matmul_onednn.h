// One matrix product by oneDNN on the calling thread. Internal to the CPU kernels.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"

namespace ds::detail {

/// c[m, n] = alpha * op(a) * op(b) (+ bias) (+ c) on raw row-major blocks; ld* are row strides as stored.
struct BlockProduct {
  DType ab = DType::f32, c_type = DType::f32, bias_type = DType::f32;
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  float alpha = 1.0f;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;  ///< [n] or null
};

/// Computes p with one thread. False, and nothing done, where the library has no fast kernel for it on this CPU (bf16
/// without AVX-512, alpha with accumulation without AVX-512); never for f32 with alpha 1. Thread-safe; primitives are
/// created once a shape and kept.
bool MultiplyWithOneDnn(const BlockProduct& p);

}  // namespace ds::detail
