// Loops in the widest vectors that the CPU has: compiled for the kernels' instruction set and once more for AVX-512.
// Internal to the CPU kernels.
#pragma once

#include "kernels/cpu_features.h"

namespace ds::detail {

#if defined(__x86_64__)
/// Whatever `loop` calls and the compiler can see becomes part of it, and so of its instruction set.
template <class Loop>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten, gnu::noinline]] void RunWithAvx512(
    const Loop& loop) {
  loop();
}
#endif

/// Runs loop(), to the same bits either way: arithmetic is IEEE's, and nothing is fused or reordered (vector_math.h,
/// lanes.h, -ffp-contract=off). For the inside of a parallel loop: a region within `loop` would keep its own
/// instruction set.
template <class Loop>
void Widest(const Loop& loop) {
#if defined(__x86_64__)
  static const bool avx512 = HasAvx512();
  if (avx512) return RunWithAvx512(loop);
#endif
  loop();
}

}  // namespace ds::detail
