// Element types in GPU code: how tensors are read as the types that kernels compute in, and written back. Internal to
// the GPU kernels (convert.h is the same for the CPU).
//
// In device code bf16 is __nv_bfloat16 and f16 is __half: the same bytes as ds::bf16 and ds::f16. Conversions give the
// bits that the CPU's give, but for NaN: as everywhere in the hardware's arithmetic, any becomes the one with all bits
// of its fraction set.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/check.h"

namespace ds::cuda {

/// The type in which elements of T are computed and summed.
template <class T>
using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// body(T{}) with the device's element type of a floating dtype.
template <class Body>
void DispatchFloating(DType dtype, const char* kernel, const Body& body) {
  switch (dtype) {
    case DType::f64:
      return body(double{});
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::f16:
      return body(__half{});
    default:
      detail::Check(false, kernel, std::string("no version for ") + NameOf(dtype));
  }
}

/// The elements of a tensor whose dtype was dispatched on.
template <class T>
T* Elements(const Tensor& t) {
  return static_cast<T*>(t.data);
}

__device__ inline float ToFloat(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(__bfloat16_as_ushort(x)) << 16);
}
__device__ inline float ToFloat(__half x) { return __half2float(x); }

/// The fp32 whose rounding to 16 bits is the rounding of x: x rounded to odd (Boldo, Melquiond 2008).
__device__ inline float RoundToOdd(double x) {
  const float towards_zero = __double2float_rz(x);
  if (static_cast<double>(towards_zero) == x || x != x) return towards_zero;
  return __uint_as_float(__float_as_uint(towards_zero) | 1u);
}

/// x as To: exact when To is the wider type, otherwise rounded to nearest even.
template <class To, class From>
__device__ inline To Converted(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, __nv_bfloat16> || std::is_same_v<From, __half>)
    return Converted<To>(ToFloat(x));
  else if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
    return Converted<To>(RoundToOdd(x));
  else if constexpr (std::is_same_v<To, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else if constexpr (std::is_same_v<To, __half>)
    return __float2half_rn(x);
  else
    return static_cast<To>(x);
}

/// N consecutive elements, moved in pieces of up to 16 bytes.
template <class T, int N>
struct Pack {
  T v[N];
  __device__ T& operator[](int i) { return v[i]; }
  __device__ const T& operator[](int i) const { return v[i]; }
};

/// Elements of T in 16 bytes.
template <class T>
constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

/// body(T{}, pack) for kernels over rows of `columns` elements. `pack`, a constant: elements that are moved together,
/// 16 bytes of them where every row starts at a multiple of 16 bytes (`aligned`: the first ones do), else 1.
template <class Body>
void DispatchPacks(DType dtype, const char* kernel, int64_t columns, bool aligned, const Body& body) {
  DispatchFloating(dtype, kernel, [&](auto type) {
    constexpr int kPack = kPackSize<decltype(type)>;
    if (aligned && columns % kPack == 0)
      body(type, std::integral_constant<int, kPack>{});
    else
      body(type, std::integral_constant<int, 1>{});
  });
}

/// Copies a pack as integers of up to 16 bytes; both ends must be aligned to them.
template <int kBytes>
__device__ inline void CopyPack(const void* from, void* to) {
  using Word = std::conditional_t<
      kBytes % 16 == 0, uint4,
      std::conditional_t<
          kBytes % 8 == 0, uint2,
          std::conditional_t<kBytes % 4 == 0, uint32_t, std::conditional_t<kBytes % 2 == 0, uint16_t, uint8_t>>>>;
#pragma unroll
  for (int i = 0; i < kBytes / static_cast<int>(sizeof(Word)); ++i)
    static_cast<Word*>(to)[i] = static_cast<const Word*>(from)[i];
}

/// Elements [0, N) of p as they are stored. Unless kAligned, p may be any address and they are moved one by one.
template <int N, bool kAligned = true, class T>
__device__ inline Pack<T, N> LoadRaw(const T* p) {
  alignas(16) Pack<T, N> pack;
  if constexpr (kAligned) {
    CopyPack<N* static_cast<int>(sizeof(T))>(p, &pack);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) pack[i] = p[i];
  }
  return pack;
}
template <bool kAligned = true, class T, int N>
__device__ inline void StoreRaw(T* p, const Pack<T, N>& raw) {
  alignas(16) const Pack<T, N> pack = raw;
  if constexpr (kAligned) {
    CopyPack<N* static_cast<int>(sizeof(T))>(&pack, p);
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) p[i] = pack[i];
  }
}

template <class To, class From, int N>
__device__ inline Pack<To, N> ConvertPack(const Pack<From, N>& from) {
  Pack<To, N> to;
  if constexpr (N % 2 == 0 && std::is_same_v<From, float> && sizeof(To) == 2) {  // two in one instruction
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      if constexpr (std::is_same_v<To, __nv_bfloat16>) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(from[i], from[i + 1]);
        to[i] = pair.x;
        to[i + 1] = pair.y;
      } else {
        const __half2 pair = __floats2half2_rn(from[i], from[i + 1]);
        to[i] = pair.x;
        to[i + 1] = pair.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = Converted<To>(from[i]);
  }
  return to;
}

/// Elements [0, N) of p in the type to compute in.
template <int N, bool kAligned = true, class T>
__device__ inline Pack<Acc<T>, N> Load(const T* p) {
  return ConvertPack<Acc<T>>(LoadRaw<N, kAligned>(p));
}
/// Writes values, rounded to T, to elements [0, N) of p.
template <bool kAligned = true, class T, class From, int N>
__device__ inline void Store(T* p, const Pack<From, N>& values) {
  StoreRaw<kAligned>(p, ConvertPack<T>(values));
}

/// Whether packs can be moved to and from all of these addresses; null is.
template <class... P>
bool Aligned(const P*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ... | uintptr_t{0}) & 15u) == 0;
}

}  // namespace ds::cuda
