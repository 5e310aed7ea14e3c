// The 8-bit floating-point formats (Micikevicius et al. 2022) and the scale of a tensor in them: the same bits on every
// device. Internal to kernels/.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include "kernels/check.h"
#include "kernels/dtype.h"
#include "kernels/host_device.h"

namespace ds::detail {

/// E4M3: no infinity; all bits set but the sign are NaN.
struct E4M3 {
  static constexpr DType kDType = DType::f8_e4m3;
  static constexpr int kFractionBits = 3, kBias = 7;
  static constexpr uint32_t kLargestCode = 0x7e;
  static constexpr float kLargest = 448.0f;
};

/// E5M2: the upper byte of an IEEE binary16.
struct E5M2 {
  static constexpr DType kDType = DType::f8_e5m2;
  static constexpr int kFractionBits = 2, kBias = 15;
  static constexpr uint32_t kLargestCode = 0x7b;
  static constexpr float kLargest = 57344.0f;
};

/// NaN in both formats. Conversions make no other.
constexpr uint8_t kFp8Nan = 0x7f;

/// x rounded to nearest even; beyond the largest finite value, infinities too: that value with the sign of x.
template <class Format>
[[gnu::always_inline]] DS_HOST_DEVICE inline uint8_t ToFp8(float x) {
  constexpr int kDropped = 23 - Format::kFractionBits;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 - Format::kBias + 1) << 23;
  // Adding 2^n, whose last bit is the formats' smallest step, rounds what is below the normal numbers.
  constexpr uint32_t kRound = static_cast<uint32_t>(127 + 1 - Format::kBias - Format::kFractionBits + 23) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  const uint32_t normal = ((size + (uint32_t{1} << (kDropped - 1)) - 1 + (size >> kDropped & 1u)) >> kDropped) -
                          (static_cast<uint32_t>(127 - Format::kBias) << Format::kFractionBits);
  const uint32_t denormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size < kLeastNormal ? size : 0u) + std::bit_cast<float>(kRound)) -
      kRound;
  uint32_t code = size < kLeastNormal ? denormal : normal;
  code = size >= std::bit_cast<uint32_t>(Format::kLargest) ? Format::kLargestCode : code;
  return static_cast<uint8_t>(size > 0x7f800000u ? kFp8Nan : sign | code);
}

/// The value of a code, which bf16 holds too.
template <class Format>
DS_HOST_DEVICE inline float FromFp8(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24, size = code & 0x7fu;
  constexpr uint32_t kInfinity = Format::kDType == DType::f8_e5m2 ? 0x7c : 0x80;
  if (size > Format::kLargestCode) return std::bit_cast<float>(sign | (size == kInfinity ? 0x7f800000u : 0x7fc00000u));
  constexpr uint32_t kHidden = uint32_t{1} << Format::kFractionBits;
  if (size < kHidden) {  // multiples of the smallest step
    constexpr uint32_t kStep = static_cast<uint32_t>(127 + 1 - Format::kBias - Format::kFractionBits) << 23;
    const float value = static_cast<float>(size) * std::bit_cast<float>(kStep);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
  }
  return std::bit_cast<float>(
      sign | ((size << (23 - Format::kFractionBits)) + (static_cast<uint32_t>(127 - Format::kBias) << 23)));
}

struct Fp8Scale {
  float scale, inverse;  ///< of elements before they are rounded; of the sums of products
};

/// The scale of a tensor of bf16 whose largest element without its sign has these bits: as integers they are ordered
/// as the numbers are, NaN above all. Not finite: NaN twice, so that no product with the tensor is. At most 2^126:
/// its inverse is then a normal number.
template <class Format>
DS_HOST_DEVICE inline Fp8Scale Fp8ScaleOf(uint32_t largest_bits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (largest_bits >= 0x7f80u) return {kNan, kNan};
  if (largest_bits == 0) return {1.0f, 1.0f};
  const float wanted = Format::kLargest / std::bit_cast<float>(largest_bits << 16);
  const float scale = wanted > 0x1p126f ? 0x1p126f : wanted;
  return {scale, 1.0f / scale};
}

/// body(Format{}) with the format of a dtype.
template <class Body>
void DispatchFp8(DType dtype, const char* kernel, const Body& body) {
  switch (dtype) {
    case DType::f8_e4m3:
      return body(E4M3{});
    case DType::f8_e5m2:
      return body(E5M2{});
    default:
      Check(false, kernel, std::string("no 8-bit format: ") + NameOf(dtype));
  }
}

}  // namespace ds::detail
