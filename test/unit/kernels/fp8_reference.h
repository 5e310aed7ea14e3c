// The 8-bit formats and quantisation, written plainly: what the kernels' tests on every device compare with.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {

struct Fp8Format {
  DType dtype;
  int fraction_bits, bias;
  int largest_code;  ///< that is finite
};
inline const Fp8Format kE4M3{DType::f8_e4m3, 3, 7, 0x7e}, kE5M2{DType::f8_e5m2, 2, 15, 0x7b};

/// The value of a code up to the largest, without a sign, as the formats' definition has it.
inline double Fp8Value(const Fp8Format& f, int code) {
  const int exponent = code >> f.fraction_bits, fraction = code & ((1 << f.fraction_bits) - 1);
  const double part = std::ldexp(fraction, -f.fraction_bits);
  return exponent == 0 ? std::ldexp(part, 1 - f.bias) : std::ldexp(1 + part, exponent - f.bias);
}

/// The nearest code: of two as near the even one; beyond the largest that; NaN 0x7f.
inline uint8_t NearestFp8(const Fp8Format& f, double x) {
  if (std::isnan(x)) return 0x7f;
  int low = 0;
  for (int high = f.largest_code + 1; high - low > 1;) {
    const int middle = (low + high) / 2;
    (Fp8Value(f, middle) <= std::fabs(x) ? low : high) = middle;
  }
  if (low < f.largest_code) {
    const double below = std::fabs(x) - Fp8Value(f, low), above = Fp8Value(f, low + 1) - std::fabs(x);
    if (above < below || (above == below && low % 2 == 1)) ++low;
  }
  return static_cast<uint8_t>(low | (std::signbit(x) ? 0x80 : 0));
}

/// A matrix in 8 bits, row by row.
struct Fp8Matrix {
  std::vector<uint8_t> codes;
  float inverse = 0;  ///< of the scale
  Values values;      ///< of the codes, times the inverse
  Values errors;      ///< how far each may be from the element that was quantised
};

/// QuantizeFp8 of finite numbers. The bound: half the distance of neighbouring numbers, which is 2^-4 (E4M3) or 2^-3
/// (E5M2) of a normal number and half the smallest step below, in the scaled tensor; 2^-20 more of the element for the
/// roundings of scale, product and inverse.
inline Fp8Matrix QuantizeReference(const Fp8Format& f, const Array& x) {
  Fp8Matrix q;
  float largest = 0;
  for (double v : x.values()) largest = std::max(largest, static_cast<float>(std::fabs(v)));
  const float scale =
      largest == 0 ? 1.0f : std::min(static_cast<float>(Fp8Value(f, f.largest_code)) / largest, 0x1p126f);
  q.inverse = 1.0f / scale;
  for (double v : x.values()) {
    const uint8_t code = NearestFp8(f, static_cast<float>(v) * scale);
    q.codes.push_back(code);
    q.values.push_back(Fp8Value(f, code & 0x7f) * (code & 0x80 ? -1.0 : 1.0) * static_cast<double>(q.inverse));
    const double step = Fp8Value(f, 1) / static_cast<double>(scale);
    q.errors.push_back(std::max(std::ldexp(std::fabs(v), -1 - f.fraction_bits), step / 2) +
                       std::ldexp(std::fabs(v), -20));
  }
  return q;
}

/// x [rows, columns] with rows as columns.
template <class T>
std::vector<T> Transposed(const std::vector<T>& x, int64_t rows, int64_t columns) {
  std::vector<T> y(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y[static_cast<size_t>(c * rows + r)] = x[static_cast<size_t>(r * columns + c)];
  return y;
}

/// How far sum_k a_k b_k may be from the exact one where a and b are off by at most their errors: what the formats
/// cost.
inline Values Fp8ProductBound(size_t m, size_t n, size_t k, const Values& a, const Values& a_errors, bool transpose_a,
                              const Values& b, const Values& b_errors, bool transpose_b) {
  const auto size = [](const Values& v) { return reference::Map(v, [](double x) { return std::fabs(x); }); };
  Values more_a = size(a), more_b = size(b);
  const Values plain = reference::MatMul(m, n, k, more_a, transpose_a, more_b, transpose_b);
  for (size_t i = 0; i < more_a.size(); ++i) more_a[i] += a_errors[i];
  for (size_t i = 0; i < more_b.size(); ++i) more_b[i] += b_errors[i];
  Values bound = reference::MatMul(m, n, k, more_a, transpose_a, more_b, transpose_b);
  for (size_t i = 0; i < bound.size(); ++i) bound[i] -= plain[i];
  return bound;
}

/// The extents of a linear layer: rows, in and out.
struct LayerSize {
  int64_t rows, in, out;
};

}  // namespace ds::test
