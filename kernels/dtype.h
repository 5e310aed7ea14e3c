// Element types of tensors, and the 16-bit floating-point types that C++20 lacks. The 8-bit ones (fp8.h) are codes that
// no kernel but products computes with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ds {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u16, u8, f8_e4m3, f8_e5m2 };

/// Bytes of one element.
constexpr size_t SizeOf(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::u8:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return 1;
  }
  return 0;
}

/// "f32", "bf16", ...
constexpr const char* NameOf(DType t) {
  switch (t) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u16:
      return "u16";
    case DType::u8:
      return "u8";
    case DType::f8_e4m3:
      return "f8_e4m3";
    case DType::f8_e5m2:
      return "f8_e5m2";
  }
  return "?";
}

/// Upper half of an fp32. Conversion from fp32 rounds to nearest even; NaN stays NaN (quiet).
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float value) {
    uint32_t u = std::bit_cast<uint32_t>(value);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet_nan = (u >> 16) | 0x40u;
    bits = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

/// IEEE 754 binary16. Conversion from fp32 rounds to nearest even and overflows to infinity.
struct f16 {
  _Float16 value;
  f16() = default;
  explicit f16(float v) : value(static_cast<_Float16>(v)) {}
  explicit operator float() const { return static_cast<float>(value); }
};
static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};

}  // namespace ds
