// From the types that tensors are stored in to the types that kernels compute in, and back. Internal to the CPU
// kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace ds::detail {

/// The type in which elements of T are computed and summed.
template <class T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// body(T{}) with the element type of a floating dtype.
template <class Body>
void DispatchFloating(DType dtype, const char* kernel, const Body& body) {
  switch (dtype) {
    case DType::f64:
      return body(double{});
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(bf16{});
    case DType::f16:
      return body(f16{});
    default:
      Check(false, kernel, std::string("no version for ") + NameOf(dtype));
  }
}

/// The fp32 whose rounding to 16 bits is the rounding of x: x rounded to odd (Boldo, Melquiond 2008).
inline float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return nearest;
  const uint32_t bits = std::bit_cast<uint32_t>(nearest);
  const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
  return std::bit_cast<float>((away ? bits - 1 : bits) | 1u);
}

/// out[i] = in[i], exact when To is the wider type, otherwise rounded to nearest even. The arrays may be the same when
/// the types are.
template <class From, class To>
void Convert(const From* in, To* out, int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    if (n > 0 && in != out) std::memmove(out, in, static_cast<size_t>(n) * sizeof(To));
  } else {
    int64_t i = 0;
#if defined(__F16C__)  // gcc 12 does not vectorise _Float16
    if constexpr (std::is_same_v<From, f16> && std::is_same_v<To, float>) {
      for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i))));
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, f16>) {
      for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    }
#endif
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bf16>) {
      auto* bits = reinterpret_cast<uint16_t*>(out);  // as integers: gcc 12 vectorises these, not the structs
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) bits[j] = bf16(in[j]).bits;
      return;
    }
    constexpr bool through_float =
        !std::is_same_v<From, float> && !std::is_same_v<To, float>;  // 16-bit types know only float
#pragma omp simd
    for (int64_t j = i; j < n; ++j) {
      if constexpr (through_float && std::is_same_v<From, double>)
        out[j] = static_cast<To>(RoundToOdd(in[j]));
      else if constexpr (through_float)
        out[j] = static_cast<To>(static_cast<float>(in[j]));
      else
        out[j] = static_cast<To>(in[j]);
    }
  }
}

/// Elements in the type to compute in: `in` itself when it has that type, else converted into `buffer`.
template <class T>
const Acc<T>* Load(const T* in, [[maybe_unused]] Acc<T>* buffer, [[maybe_unused]] int64_t n) {
  if constexpr (std::is_same_v<T, Acc<T>>) {
    return in;
  } else {
    Convert(in, buffer, n);
    return buffer;
  }
}

/// Where to compute elements that end up in `out`: `out` itself or `buffer`. Store() then brings them there.
template <class T>
Acc<T>* StoreTarget(T* out, [[maybe_unused]] Acc<T>* buffer) {
  if constexpr (std::is_same_v<T, Acc<T>>)
    return out;
  else
    return buffer;
}
template <class T>
void Store(const Acc<T>* from, T* out, int64_t n) {
  Convert(from, out, n);
}

}  // namespace ds::detail
