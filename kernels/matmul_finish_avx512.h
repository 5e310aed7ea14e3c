// The last step of a panel's product. Only for files that are compiled for AVX-512, as avx512.h.
#pragma once

#include "kernels/avx512.h"
#include "kernels/matmul_packed.h"

namespace ds::detail {
namespace {

constexpr int64_t kPanelColumns = 32;

/// c = alpha * sums (+ bias) (+ c) for the panel's sums, [rows, 32] aligned to 64 bytes.
[[maybe_unused]] inline void Finish(const PanelOutput& o, const float* sums) {
  const __mmask16 masks[2] = {FirstLanes(o.columns), FirstLanes(o.columns - 16)};
  const __m512 alpha = _mm512_set1_ps(o.alpha);
  for (int64_t j = 0; j < 2; ++j) {
    const __m512 bias = o.bias ? LoadFloats(o.bias, o.bias_type, 16 * j, masks[j]) : _mm512_setzero_ps();
    for (int64_t i = 0; i < o.rows; ++i) {
      char* c = static_cast<char*>(o.c) + i * o.ldc * static_cast<int64_t>(SizeOf(o.c_type));
      __m512 v = _mm512_mul_ps(_mm512_load_ps(sums + i * kPanelColumns + 16 * j), alpha);
      if (o.bias) v = _mm512_add_ps(v, bias);
      if (o.accumulate) v = _mm512_add_ps(v, LoadFloats(c, o.c_type, 16 * j, masks[j]));
      StoreFloats(c, o.c_type, 16 * j, masks[j], v);
    }
  }
}

}  // namespace
}  // namespace ds::detail
