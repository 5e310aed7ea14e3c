// Helpers over AVX-512 intrinsics. Only for files that are compiled for AVX-512 (kernels/CMakeLists.txt): everything
// here has internal linkage, so that no other file can end up with code that its CPU does not run.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace ds::detail {
namespace {

/// The first n of 16 lanes, n clamped to [0, 16].
[[maybe_unused]] inline __mmask16 FirstLanes(int64_t n) {
  return n >= 16 ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : static_cast<__mmask16>((1u << n) - 1u);
}

/// Elements [i, i + 16) of p as fp32, zeros where the mask is 0.
[[maybe_unused]] inline __m512 LoadFloats(const void* p, DType type, int64_t i, __mmask16 mask) {
  if (type == DType::f32) return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(p) + i);
  const __m256i half = _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(p) + i);
  if (type == DType::f16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// fp32 to bf16 as ds::bf16 rounds: to nearest even, NaN stays NaN.
[[maybe_unused]] inline __m256i RoundToBf16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v), upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, upper, _mm512_set1_epi32(0x40)));
}

/// Writes v, rounded to `type`, to elements [i, i + 16) of p where the mask is 1.
[[maybe_unused]] inline void StoreFloats(void* p, DType type, int64_t i, __mmask16 mask, __m512 v) {
  if (type == DType::f32) return _mm512_mask_storeu_ps(static_cast<float*>(p) + i, mask, v);
  const __m256i half =
      type == DType::f16 ? _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) : RoundToBf16(v);
  _mm256_mask_storeu_epi16(static_cast<uint16_t*>(p) + i, mask, half);
}

/// Transposes 16 rows of 16 lanes of 32 bits.
[[maybe_unused, gnu::always_inline]] inline void Transpose(__m512 (&r)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // r[4i + c]: column c of each group of four, of rows 4i .. 4i + 3
    const auto low = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    const auto high = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    r[4 * i] = low(4 * i, 4 * i + 2), r[4 * i + 1] = high(4 * i, 4 * i + 2);
    r[4 * i + 2] = low(4 * i + 1, 4 * i + 3), r[4 * i + 3] = high(4 * i + 1, 4 * i + 3);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 even01 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88),
                 odd01 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
    const __m512 even23 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88),
                 odd23 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_f32x4(even01, even23, 0x88);
    t[8 + c] = _mm512_shuffle_f32x4(even01, even23, 0xdd);
    t[4 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0x88);
    t[12 + c] = _mm512_shuffle_f32x4(odd01, odd23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace
}  // namespace ds::detail
