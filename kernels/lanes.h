// Reductions in a fixed number of lanes: they vectorise, and their order is defined. Internal to the CPU kernels.
#pragma once

#include <cstdint>

namespace ds::detail {

constexpr int kLanes = 16;

/// Sum of term(i) for i in [0, n): term i is added to lane i mod 16, then lanes are added 0..15.
template <class A, class Term>
A LaneSum(int64_t n, const Term& term) {
  A lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += term(i);
  A sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

/// Largest of x[0..n), n > 0. NaN is passed over: what is computed with the maximum meets it again.
template <class A>
A LaneMax(const A* x, int64_t n) {
  A lanes[kLanes];
  for (int l = 0; l < kLanes; ++l) lanes[l] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] = x[i] > lanes[l] ? x[i] : lanes[l];
  A largest = lanes[0];
  for (int l = 1; l < kLanes; ++l) largest = lanes[l] > largest ? lanes[l] : largest;
  return largest;
}

}  // namespace ds::detail
