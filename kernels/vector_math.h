// Elementary functions without branches, so that loops over them vectorise (for which they must be inlined, always).
// Internal to kernels/.
//
// The float versions are fixed sequences of IEEE operations: the same bits on every CPU, in every vector width and on
// GPUs.
// Their polynomials are least-maximum fits made for DeepShard; the errors stated were measured against fp64 over all
// floats of the range (test/unit/kernels/vector_math_test.cc checks them on a grid). The double versions are the C
// library's, or CUDA's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace ds::detail {

/// 2^n for n in [-126, 127].
[[gnu::always_inline]] DS_HOST_DEVICE inline float PowerOfTwo(int32_t n) {
  return std::bit_cast<float>((n + 127) << 23);
}

/// e^x. At most 1 ulp (denormal results included: then 1 ulp of a denormal); 0 and infinity at the ends, NaN for NaN.
[[gnu::always_inline]] DS_HOST_DEVICE inline float Exp(float x) {
  const float bounded = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = std::fma(bounded, 0x1.715476p+0f, kRound);
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float whole = shifted - kRound;
  float r = std::fma(whole, -0x1.62e400p-1f, bounded);  // ln 2 in two parts
  r = std::fma(whole, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a1a72p-10f;
  p = std::fma(p, r, 0x1.123fc6p-7f);
  p = std::fma(p, r, 0x1.555916p-5f);
  p = std::fma(p, r, 0x1.55548ap-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p * r, r, r) + 1.0f;
  const int32_t half = n >> 1;  // in two steps: 2^n alone may overflow or be denormal
  return p * PowerOfTwo(half) * PowerOfTwo(n - half);
}
DS_HOST_DEVICE inline double Exp(double x) { return std::exp(x); }

/// erf(x), at most 2 ulp.
[[gnu::always_inline]] DS_HOST_DEVICE inline float Erf(float x) {
  const float t = std::fabs(x) > 4.0f ? 4.0f : std::fabs(x);  // erf(4) rounds to 1
  const float s = x * x;
  float p = -0x1.438404p-17f;
  p = std::fma(p, s, 0x1.d82692p-14f);
  p = std::fma(p, s, -0x1.bcbe9ap-11f);
  p = std::fma(p, s, 0x1.5628eep-8f);
  p = std::fma(p, s, -0x1.b829a8p-6f);
  p = std::fma(p, s, 0x1.ce2f08p-4f);
  p = std::fma(p, s, -0x1.812746p-2f);
  p = std::fma(p, s, 0x1.06eba8p-3f);
  const float small = std::fma(p, x, x);
  float q = 0x1.dd6b3ap-19f;  // -log(erfc(t)) = t + t q(t)
  q = std::fma(q, t, -0x1.dd132ep-16f);
  q = std::fma(q, t, -0x1.22f93cp-13f);
  q = std::fma(q, t, 0x1.a1127ap-9f);
  q = std::fma(q, t, -0x1.7a5550p-6f);
  q = std::fma(q, t, 0x1.b0d208p-4f);
  q = std::fma(q, t, 0x1.45547ap-1f);
  q = std::fma(q, t, 0x1.075f38p-3f);
  const float large = std::copysign(1.0f - Exp(-std::fma(q, t, t)), x);
  return t < 1.0f ? small : large;
}
DS_HOST_DEVICE inline double Erf(double x) { return std::erf(x); }

/// log(x) for normal positive x, at most 2 ulp.
[[gnu::always_inline]] DS_HOST_DEVICE inline float LogOfPositive(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  const int32_t n = (bits - 0x3f3504f3) >> 23;  // x = m * 2^n, m in [sqrt(1/2), sqrt(2))
  const float f = std::bit_cast<float>(bits - n * (1 << 23)) - 1.0f;
  float p = 0x1.145724p-4f;
  p = std::fma(p, f, -0x1.de3bf2p-4f);
  p = std::fma(p, f, 0x1.e6f094p-4f);
  p = std::fma(p, f, -0x1.fc2210p-4f);
  p = std::fma(p, f, 0x1.233766p-3f);
  p = std::fma(p, f, -0x1.555c4ep-3f);
  p = std::fma(p, f, 0x1.99a4b6p-3f);
  p = std::fma(p, f, -0x1.000006p-2f);
  p = std::fma(p, f, 0x1.555548p-2f);
  const float whole = static_cast<float>(n);
  const float f2 = f * f;
  const float low = std::fma(p * f, f2, whole * 0x1.7f7d1cp-20f);
  return std::fma(whole, 0x1.62e400p-1f, std::fma(-0.5f, f2, low) + f);
}

/// cos and sin of 2 pi turn / 2^32, absolute error at most 2^-23. The reduction is exact: it is done on the integer.
struct CosSin {
  float cos, sin;
};
[[gnu::always_inline]] DS_HOST_DEVICE inline CosSin CosSinOfTurn(uint32_t turn) {
  const uint32_t eighth = turn + 0x20000000u;  // quadrants centred on multiples of a quarter turn
  const uint32_t quadrant = eighth >> 30;
  const int32_t rest = static_cast<int32_t>(turn - (quadrant << 30));  // in [-1/8, 1/8) turn
  const float t = static_cast<float>(rest) * 0x1p-32f;
  const float s = t * t;
  float sine = 0x1.4bc256p+5f;
  sine = std::fma(sine, s, -0x1.32ca86p+6f);
  sine = std::fma(sine, s, 0x1.466bbap+6f);
  sine = std::fma(sine, s, -0x1.4abbcep+5f);
  sine = std::fma(sine, s, 0x1.921fb6p+2f) * t;
  float cosine = 0x1.d9f7bcp+5f;
  cosine = std::fma(cosine, s, -0x1.55c664p+6f);
  cosine = std::fma(cosine, s, 0x1.03c1dep+6f);
  cosine = std::fma(cosine, s, -0x1.3bd3ccp+4f);
  cosine = std::fma(cosine, s, 1.0f);
  const bool swap = (quadrant & 1u) != 0;
  const float c = swap ? sine : cosine;
  const float n = swap ? cosine : sine;
  // quadrant 0: (c, s); 1: (-s, c); 2: (-c, -s); 3: (s, -c)
  const uint32_t flip_cos = ((quadrant + 1u) & 2u) << 30, flip_sin = (quadrant & 2u) << 30;
  return {std::bit_cast<float>(std::bit_cast<uint32_t>(c) ^ flip_cos),
          std::bit_cast<float>(std::bit_cast<uint32_t>(n) ^ flip_sin)};
}

}  // namespace ds::detail
