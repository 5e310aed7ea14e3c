// Fused multiply-adds on registers. Functions are compiled for vectors that the program as a whole does not assume, and
// called where the CPU has them.
#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
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

// The sums go to 3, which is x / (1 - x) of x = 3/4: no infinities, no denormals. The end goes to memory, so that
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

/// The most operations a second of each thread's own short rounds, while the others are at work too, added up: a thread
/// that waits for its turn on a busy machine does not count as slow.
template <class T>
double Rate(void (*loop)(T*), int lanes, int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  std::vector<double> best(static_cast<size_t>(threads), 0);
  const auto begin = Clock::now();
  detail::ParallelFor(KernelContext{threads}, threads, [&](int64_t thread) {
    std::array<T, kChains * 16> sums;
    double most = 0;
    do {
      const auto round = Clock::now();
      loop(sums.data());
      most = std::max(most, 2.0 * kChains * kSteps * lanes / since(round));
    } while (since(begin) < seconds);
    best[static_cast<size_t>(thread)] = most;
  });
  return std::accumulate(best.begin(), best.end(), 0.0);
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
