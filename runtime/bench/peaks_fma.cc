// Fused multiply-adds on registers. Functions are compiled for vectors that the program as a whole does not assume, and
// called where the CPU has them.
#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/cpu_features.h"
#include "kernels/parallel.h"
#include "runtime/bench/peaks.h"
#include "runtime/bench/timer.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ds {
namespace {

constexpr int kChains = 12;  // independent sums: two units of four to five cycles each
constexpr int kSteps = 50'000;

#if defined(__x86_64__)

// The sums go to x / (1 - x) for a factor x below 1: no infinities, no denormals. The end goes to memory, so that
// nothing is optimised away.
#define DS_FMA_LOOP(NAME, TARGET, VECTOR, T, SET1, FMA, STORE)                                                         \
  [[gnu::target(TARGET)]] void NAME(T* out) {                                                                          \
    VECTOR sums[kChains];                                                                                              \
    const VECTOR factor = SET1(T(0.75));                                                                               \
    _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) sums[i] = SET1(T(i));                                   \
    for (int step = 0; step < kSteps; ++step) {                                                                        \
      _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) sums[i] = FMA(sums[i], factor, factor);               \
    }                                                                                                                  \
    _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) STORE(out + i * (sizeof(VECTOR) / sizeof(T)), sums[i]); \
  }

DS_FMA_LOOP(FmaF32Avx2, "avx2,fma", __m256, float, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps)
DS_FMA_LOOP(FmaF64Avx2, "avx2,fma", __m256d, double, _mm256_set1_pd, _mm256_fmadd_pd, _mm256_storeu_pd)
DS_FMA_LOOP(FmaF32Avx512, "avx512f", __m512, float, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
DS_FMA_LOOP(FmaF64Avx512, "avx512f", __m512d, double, _mm512_set1_pd, _mm512_fmadd_pd, _mm512_storeu_pd)
#undef DS_FMA_LOOP

/// The most operations a second of a few rounds, each of which all threads begin together.
template <class T>
double Rate(void (*loop)(T*), int lanes, int threads, double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [](auto from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  std::vector<T> sums(static_cast<size_t>(threads) * kChains * 16);
  double best = 0;
  do {
    const auto round = std::chrono::steady_clock::now();
    detail::ParallelFor(KernelContext{threads}, threads,
                        [&](int64_t thread) { loop(sums.data() + static_cast<size_t>(thread) * kChains * 16); });
    best = std::max(best, 2.0 * kChains * kSteps * lanes * threads / since(round));
  } while (since(begin) < seconds);
  return best;
}

#endif

}  // namespace

double CpuFmaFlops([[maybe_unused]] DType dtype, [[maybe_unused]] int threads, [[maybe_unused]] double seconds) {
#if defined(__x86_64__)
  const bool avx512 = HasAvx512();
  if (!avx512 && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return 0;
  if (dtype == DType::f32)
    return avx512 ? Rate(FmaF32Avx512, 16, threads, seconds) : Rate(FmaF32Avx2, 8, threads, seconds);
  if (dtype == DType::f64)
    return avx512 ? Rate(FmaF64Avx512, 8, threads, seconds) : Rate(FmaF64Avx2, 4, threads, seconds);
#endif
  return 0;
}

}  // namespace ds
