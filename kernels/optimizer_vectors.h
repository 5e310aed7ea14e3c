// Optimizer updates over vectors, for the files of each instruction set: included by optimizer_avx2.cc and
// optimizer_avx512.cc behind their struct Vector. Everything here has internal linkage, so that no other file can end
// up with code that its CPU does not run. Internal to the CPU kernels.
//
// Vector is kLanes floats, with the operations that optimizer_math.h wants, and
//   Vector Load(const void* from, DType type, int64_t i): elements [i, i + kLanes), any alignment, as fp32;
//   void Store(void* to, DType type, int64_t i, Vector v): rounded to `type`;
//   void StorePair(void* to, DType type, int64_t i, Vector a, Vector b, bool stream): elements [i, i + 2 kLanes);
//   `stream`: past the caches, and 16-bit ones are aligned to a pair of vectors, which fills one register.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/optimizer_kernels.h"
#include "kernels/optimizer_math.h"

namespace ds::detail {
namespace {

/// Bytes of an element: f32, bf16 or f16. Not SizeOf, which has external linkage.
inline int64_t ElementBytes(DType type) { return type == DType::f32 ? 4 : 2; }

/// Updates elements [i, i + kLanes) and returns the new parameters.
template <int States, class Scalars>
[[gnu::always_inline]] inline Vector UpdateVector(const Scalars& s, const OptimizerArrays& a, int64_t i) {
  const Vector g = Load(a.gradient, a.gradient_type, i);
  Vector p = Load(a.master, DType::f32, i);
  if constexpr (States == 0) {
    Update(s, g, p);
  } else if constexpr (States == 1) {
    Vector first = Load(a.state[0], DType::f32, i);
    Update(s, g, p, first);
    Store(a.state[0], DType::f32, i, first);
  } else {
    Vector first = Load(a.state[0], DType::f32, i), second = Load(a.state[1], DType::f32, i);
    Update(s, g, p, first, second);
    Store(a.state[0], DType::f32, i, first);
    Store(a.state[1], DType::f32, i, second);
  }
  Store(a.master, DType::f32, i, p);
  return p;
}

/// Fewer elements than a vector has, by way of arrays that hold one.
template <int States, class Scalars>
void UpdateFew(const Scalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  const size_t count = static_cast<size_t>(end - begin);
  const size_t wide = count * sizeof(float);
  const int64_t gradient_bytes = ElementBytes(a.gradient_type), working_bytes = ElementBytes(a.working_type);
  alignas(64) float g[kLanes] = {}, p[kLanes] = {}, states[2][kLanes] = {}, working[kLanes] = {};
  std::memcpy(g, static_cast<const char*>(a.gradient) + begin * gradient_bytes,
              count * static_cast<size_t>(gradient_bytes));
  std::memcpy(p, a.master + begin, wide);
  for (int k = 0; k < States; ++k) std::memcpy(states[k], a.state[k] + begin, wide);
  const OptimizerArrays few = {g, a.gradient_type, p, {states[0], states[1]}, working, a.working_type, false};
  const Vector updated = UpdateVector<States>(s, few, 0);
  std::memcpy(a.master + begin, p, wide);
  for (int k = 0; k < States; ++k) std::memcpy(a.state[k] + begin, states[k], wide);
  if (!a.working) return;
  Store(working, a.working_type, 0, updated);
  std::memcpy(static_cast<char*>(a.working) + begin * working_bytes, working,
              count * static_cast<size_t>(working_bytes));
}

/// Elements from i to the first whose 16-bit working copy is aligned to a pair of vectors.
inline int64_t Misaligned(const OptimizerArrays& a, int64_t i) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(a.working) + static_cast<uintptr_t>(i) * 2;
  return static_cast<int64_t>((0 - at) / 2 % (2 * kLanes));
}

template <int States, class Scalars>
void Step(const Scalars& scalars, const OptimizerArrays& arrays, int64_t begin, int64_t end) {
  const Scalars s = scalars;         // copies: what is written through a pointer to float cannot change them,
  const OptimizerArrays a = arrays;  // so they stay in registers
  int64_t i = begin;
  const bool stream = a.stream && a.working && a.working_type != DType::f32;
  if (stream) {
    for (const int64_t aligned = std::min(end, begin + Misaligned(a, begin)); i < aligned;) {
      const int64_t to = std::min(aligned, i + kLanes);
      UpdateFew<States>(s, a, i, to);
      i = to;
    }
  }
  for (; i + 2 * kLanes <= end; i += 2 * kLanes) {
    const Vector low = UpdateVector<States>(s, a, i), high = UpdateVector<States>(s, a, i + kLanes);
    if (a.working) StorePair(a.working, a.working_type, i, low, high, stream);
  }
  while (i < end) {
    const int64_t to = std::min(end, i + kLanes);
    UpdateFew<States>(s, a, i, to);
    i = to;
  }
  if (stream) _mm_sfence();  // what was streamed stands in memory before this thread says that it has finished
}

void Adam(const AdamScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) { Step<2>(s, a, begin, end); }
void Sgd(const SgdScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  a.state[0] ? Step<1>(s, a, begin, end) : Step<0>(s, a, begin, end);
}
void Lion(const LionScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) { Step<1>(s, a, begin, end); }
void Adagrad(const AdagradScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  Step<1>(s, a, begin, end);
}
void RmsProp(const RmsPropScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  a.state[1] ? Step<2>(s, a, begin, end) : Step<1>(s, a, begin, end);
}

constexpr OptimizerKernels kVectorKernels = {kVectorName, Adam, Sgd, Lion, Adagrad, RmsProp};

}  // namespace
}  // namespace ds::detail
