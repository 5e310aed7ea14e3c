// A pass over an optimizer's arrays that computes next to nothing: what their memory allows. In vectors that the
// program as a whole does not assume, where the CPU has them.
#include <bit>
#include <cstdint>

#include "kernels/cpu_features.h"
#include "runtime/bench/host_optimizer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC bug 105593, within its own header
#endif

namespace ds::detail {
namespace {

#if defined(__x86_64__)

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void WithAvx512(const StreamArrays& a, int64_t begin,
                                                                      int64_t end) {
  const __m512 zero = _mm512_set1_ps(a.zero);
  for (int64_t i = begin; i < end; i += 16) {
    const __m512 g = a.gradient_bytes == 4
                         ? _mm512_load_ps(static_cast<const float*>(a.gradient) + i)
                         : _mm512_castsi512_ps(_mm512_slli_epi32(
                               _mm512_cvtepu16_epi32(_mm256_load_si256(
                                   reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(a.gradient) + i))),
                               16));
    const __m512 nothing = _mm512_mul_ps(g, zero);
    const __m512 p = _mm512_add_ps(_mm512_load_ps(a.master + i), nothing);
    _mm512_store_ps(a.master + i, p);
    _mm512_store_ps(a.m + i, _mm512_add_ps(_mm512_load_ps(a.m + i), nothing));
    _mm512_store_ps(a.v + i, _mm512_add_ps(_mm512_load_ps(a.v + i), nothing));
    if (!a.working) continue;
    const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(p), 16));
    auto* const to = reinterpret_cast<__m256i*>(a.working + i);
    a.past_caches ? _mm256_stream_si256(to, half) : _mm256_store_si256(to, half);
  }
  _mm_sfence();
}

[[gnu::target("avx2")]] void WithAvx2(const StreamArrays& a, int64_t begin, int64_t end) {
  const __m256 zero = _mm256_set1_ps(a.zero);
  for (int64_t i = begin; i < end; i += 8) {
    const __m256 g = a.gradient_bytes == 4 ? _mm256_load_ps(static_cast<const float*>(a.gradient) + i)
                                           : _mm256_castsi256_ps(_mm256_slli_epi32(
                                                 _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(
                                                     static_cast<const uint16_t*>(a.gradient) + i))),
                                                 16));
    const __m256 nothing = _mm256_mul_ps(g, zero);
    const __m256 p = _mm256_add_ps(_mm256_load_ps(a.master + i), nothing);
    _mm256_store_ps(a.master + i, p);
    _mm256_store_ps(a.m + i, _mm256_add_ps(_mm256_load_ps(a.m + i), nothing));
    _mm256_store_ps(a.v + i, _mm256_add_ps(_mm256_load_ps(a.v + i), nothing));
    if (!a.working) continue;
    const __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(p), 16);
    const __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
    auto* const to = reinterpret_cast<__m128i*>(a.working + i);
    a.past_caches ? _mm_stream_si128(to, half) : _mm_store_si128(to, half);
  }
  _mm_sfence();
}

#endif

void Plain(const StreamArrays& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = a.gradient_bytes == 4 ? static_cast<const float*>(a.gradient)[i]
                                          : static_cast<float>(static_cast<const bf16*>(a.gradient)[i]);
    a.master[i] += g * a.zero, a.m[i] += g * a.zero, a.v[i] += g * a.zero;
    if (a.working) a.working[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(a.master[i]) >> 16);
  }
}

}  // namespace

void StreamRange(const StreamArrays& arrays, int64_t begin, int64_t end) {
  int64_t whole = begin;
#if defined(__x86_64__)
  const bool avx512 = HasAvx512(), avx2 = HasAvx2();
  if (avx512 || avx2) {
    whole = begin + (end - begin) / 16 * 16;
    avx512 ? WithAvx512(arrays, begin, whole) : WithAvx2(arrays, begin, whole);
  }
#endif
  Plain(arrays, whole, end);
}

}  // namespace ds::detail
