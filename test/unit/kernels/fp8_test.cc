// 8-bit formats, quantisation, products and linear layers on the CPU: the reference of those on GPUs.
#include "kernels/fp8.h"

#include <bit>
#include <random>

#include "kernels/fp8_linear.h"
#include "kernels/fp8_math.h"
#include "kernels/workspace.h"
#include "test/unit/kernels/fp8_reference.h"

namespace ds::test {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

template <class Format>
void CheckConversions(const Fp8Format& f) {
  CAPTURE(NameOf(f.dtype));
  int wrong = 0;
  const auto check = [&](float x) { wrong += detail::ToFp8<Format>(x) != NearestFp8(f, x); };
  for (uint32_t bits = 0; bits < 65536; ++bits) check(std::bit_cast<float>(bits << 16));
  CHECK(wrong == 0);
  // Numbers at, and next to, the middle of two that the format has, which bf16 does not all have.
  for (int code = 0; code <= f.largest_code; ++code) {
    const double next = code < f.largest_code ? Fp8Value(f, code + 1) : 2 * Fp8Value(f, code);
    const auto middle = static_cast<float>((Fp8Value(f, code) + next) / 2);
    for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, HUGE_VALF)}) check(x), check(-x);
  }
  std::mt19937 generator(1);
  for (int i = 0; i < 1'000'000; ++i) check(std::bit_cast<float>(static_cast<uint32_t>(generator())));
  CHECK(wrong == 0);
}

TEST_CASE("fp8: every bf16 number becomes the nearest code, with saturation") {
  CheckConversions<detail::E4M3>(kE4M3);
  CheckConversions<detail::E5M2>(kE5M2);
  CHECK(detail::ToFp8<detail::E4M3>(448) == 0x7e);
  CHECK(detail::ToFp8<detail::E4M3>(-1e9f) == 0xfe);
  CHECK(detail::ToFp8<detail::E5M2>(HUGE_VALF) == 0x7b);
  CHECK(detail::ToFp8<detail::E5M2>(NAN) == 0x7f);
  CHECK(detail::ToFp8<detail::E4M3>(-0.0f) == 0x80);
  CHECK(Fp8Value(kE4M3, 0x7e) == 448);
  CHECK(Fp8Value(kE5M2, 0x7b) == 57344);
  CHECK(Fp8Value(kE4M3, 1) == 0x1p-9);
  CHECK(Fp8Value(kE5M2, 1) == 0x1p-16);
}

template <class Format>
void CheckCodes(const Fp8Format& f) {
  CAPTURE(NameOf(f.dtype));
  for (int code = 0; code < 256; ++code) {
    const float value = detail::FromFp8<Format>(static_cast<uint8_t>(code));
    CAPTURE(code, value);
    if ((code & 0x7f) > f.largest_code) {
      const bool infinity = f.dtype == DType::f8_e5m2 && (code & 0x7f) == 0x7c;
      CHECK((infinity ? std::isinf(value) && std::signbit(value) == (code >= 0x80) : std::isnan(value)));
      continue;
    }
    CHECK(value == (code & 0x80 ? -1 : 1) * Fp8Value(f, code & 0x7f));
    CHECK(std::signbit(value) == (code >= 0x80));
    CHECK(static_cast<float>(bf16(value)) == value);
    CHECK(detail::ToFp8<Format>(value) == code);
  }
}

TEST_CASE("fp8: every code has the value that its format defines, in bf16 too, and comes back from it") {
  CheckCodes<detail::E4M3>(kE4M3);
  CheckCodes<detail::E5M2>(kE5M2);
}

struct Quantized {
  Array codes, inverse, largest;
};

Quantized Quantize(const KernelContext& context, const Fp8Format& f, const Array& x, bool transpose) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  Quantized q{Array(f.dtype, transpose ? Shape{columns, rows} : Shape{rows, columns}), Array(DType::f32, {1}),
              Array(DType::i32, {1})};
  QuantizeFp8(context, x, transpose, q.codes, q.inverse, q.largest);
  return q;
}

std::vector<uint8_t> Bytes(const Array& codes) { return {codes.data(), codes.data() + codes.size()}; }

const Shape kShapes[] = {{16, 16}, {16, 160}, {208, 48}, {640, 112}};

TEST_CASE("fp8: a tensor is scaled by its own largest element and rounded, transposed or not, on any threads") {
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (const Shape& shape : kShapes)
      for (bool transpose : {false, true}) {
        CAPTURE(NameOf(f->dtype), shape.str(), transpose);
        Array x = Array::Random(DType::bf16, shape, 1, 3);
        x.Set(x.size() - 1, -1e-6);  // among the smallest numbers of the formats, or below
        const auto got = OnAnyThreads([&](const KernelContext& context) {
          const Quantized q = Quantize(context, *f, x, transpose);
          return std::vector<Array>{q.codes, q.inverse, q.largest};
        });
        const Fp8Matrix want = QuantizeReference(*f, x);
        CHECK(Bytes(got[0]) == (transpose ? Transposed(want.codes, shape[0], shape[1]) : want.codes));
        CHECK(got[0].Intact());
        CHECK(got[1][0] == static_cast<double>(want.inverse));
        for (size_t i = 0; i < x.size(); ++i) REQUIRE(std::fabs(want.values[i] - x[i]) <= want.errors[i]);
      }
}

TEST_CASE("fp8: zeros, the smallest and the largest numbers have scales that are finite, and so has their inverse") {
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (double largest : {0.0, 0x1p-133, 0x1p-126, 1e-30, 1.0, 448.0, 3.38e38}) {
      CAPTURE(NameOf(f->dtype), largest);
      Array x = Array::Of(DType::bf16, {16, 16}, Values(256));
      x.Set(77, -largest);
      const Quantized q = Quantize({}, *f, x, false);
      const Fp8Matrix want = QuantizeReference(*f, x);
      CHECK(Bytes(q.codes) == want.codes);
      CHECK(q.inverse[0] == static_cast<double>(want.inverse));
      CHECK(std::isnormal(q.inverse[0]));
      CHECK(std::fabs(want.values[77] + std::fabs(x[77])) <= want.errors[77]);
      if (largest >= 1e-30) CHECK(q.codes.data()[77] == (0x80 | f->largest_code));
      if (largest == 0) CHECK(q.inverse[0] == 1);
      if (largest == 448 && f == &kE4M3) CHECK(q.inverse[0] == 1);
    }
}

TEST_CASE("fp8: what is not finite makes every product not finite") {
  for (double bad : {static_cast<double>(INFINITY), -static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    CAPTURE(bad);
    const Array good = Array::Random(DType::bf16, {16, 32}, 1);
    Array x = Array::Random(DType::bf16, {32, 32}, 2);
    x.Set(5, bad);
    const Quantized q = Quantize({}, kE5M2, x, true);
    for (uint8_t code : Bytes(q.codes)) REQUIRE(code == 0x7f);
    CHECK(std::isnan(q.inverse[0]));
    Array y(DType::bf16, {32, 16}), dx(DType::bf16, {16, 32}), dw(DType::f32, {32, 32});
    Fp8LinearForward({}, x, good, {}, y);
    for (double v : y.values()) REQUIRE(std::isnan(v));
    Fp8LinearBackwardInput({}, good, x, dx);
    for (double v : dx.values()) REQUIRE(std::isnan(v));
    Fp8LinearBackwardWeight({}, x, Array::Random(DType::bf16, {32, 32}, 3), dw, false);
    for (double v : dw.values()) REQUIRE(std::isnan(v));
  }
}

/// Like x, with the codes of q.
Array CodesOf(const Fp8Format& f, Shape shape, const std::vector<uint8_t>& codes) {
  Array a(f.dtype, shape);
  std::copy(codes.begin(), codes.end(), a.data());
  return a;
}

struct Output {
  DType c;
  bool bias, accumulate;
};
const Output kOutputs[] = {
    {DType::bf16, false, false}, {DType::bf16, true, false}, {DType::f32, false, false}, {DType::f32, false, true}};

TEST_CASE("fp8: products agree with fp64 of the same codes, times both inverse scales") {
  const int64_t m = 48, n = 80, k = 176;
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (const Output& o : kOutputs) {
      CAPTURE(NameOf(f->dtype), NameOf(o.c), o.bias, o.accumulate);
      const Fp8Matrix a = QuantizeReference(*f, Array::Random(DType::bf16, {m, k}, 1, 0.01));
      const Fp8Matrix b = QuantizeReference(kE4M3, Array::Random(DType::bf16, {n, k}, 2, 20));
      const Array a_codes = CodesOf(*f, {m, k}, a.codes), b_codes = CodesOf(kE4M3, {n, k}, b.codes);
      const Array a_inverse = Array::Of(DType::f32, {1}, {a.inverse}),
                  b_inverse = Array::Of(DType::f32, {1}, {b.inverse});
      const Array bias = Array::Random(DType::bf16, {n}, 3), before = Array::Random(DType::f32, {m, n}, 4);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array c = o.accumulate ? before : Array(o.c, {m, n});
        MatMulFp8(context, a_codes, a_inverse, b_codes, b_inverse, o.bias ? bias.tensor() : Tensor(), c, o.accumulate);
        return std::vector<Array>{c};
      });
      Values want = reference::MatMul(Z(m), Z(n), Z(k), a.values, false, b.values, true);
      for (size_t i = 0; i < want.size(); ++i)
        want[i] += (o.bias ? bias[i % Z(n)] : 0) + (o.accumulate ? before[i] : 0);
      CheckClose("c", got[0], want, o.c == DType::bf16 ? 4e-3 : 2e-6);  // half a step of bf16 is 2^-8
    }
}

const LayerSize kLayers[] = {{16, 16, 16}, {48, 64, 80}, {112, 160, 32}};

/// got is that of the quantised formula, within the rounding of its dtype, and that of the exact one within what the
/// formats cost (Fp8ProductBound).
void CheckBoth(const char* name, const Array& got, const Values& quantized, const Values& exact, const Values& bound) {
  const double rounding = got.dtype() == DType::bf16 ? 4e-3 : 2e-6;
  CheckClose(name, got, quantized, rounding);
  CheckClose(name, got, exact, rounding, bound);
}

TEST_CASE("fp8: a linear layer's forward is that of the quantised operands, near the exact one") {
  for (const LayerSize& s : kLayers)
    for (bool with_bias : {false, true}) {
      CAPTURE(s.rows, s.in, s.out, with_bias);
      const Array x = Array::Random(DType::bf16, {s.rows, s.in}, 1, 2), bias = Array::Random(DType::bf16, {s.out}, 3);
      const Array weight = Array::Random(DType::bf16, {s.out, s.in}, 2, 0.02);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array y(DType::bf16, {s.rows, s.out});
        Fp8LinearForward(context, x, weight, with_bias ? bias.tensor() : Tensor(), y);
        return std::vector<Array>{y};
      });
      const Fp8Matrix a = QuantizeReference(kE4M3, x), b = QuantizeReference(kE4M3, weight);
      Values quantized = reference::MatMul(Z(s.rows), Z(s.out), Z(s.in), a.values, false, b.values, true);
      Values exact = reference::MatMul(Z(s.rows), Z(s.out), Z(s.in), x.values(), false, weight.values(), true);
      for (size_t i = 0; with_bias && i < exact.size(); ++i)
        quantized[i] += bias[i % Z(s.out)], exact[i] += bias[i % Z(s.out)];
      CheckBoth(
          "y", got[0], quantized, exact,
          Fp8ProductBound(Z(s.rows), Z(s.out), Z(s.in), x.values(), a.errors, false, weight.values(), b.errors, true));
    }
}

TEST_CASE("fp8: a linear layer's gradients are those of the quantised operands, near the exact ones") {
  for (const LayerSize& s : kLayers)
    for (bool accumulate : {false, true}) {
      CAPTURE(s.rows, s.in, s.out, accumulate);
      const Array x = Array::Random(DType::bf16, {s.rows, s.in}, 1, 2);
      const Array dy = Array::Random(DType::bf16, {s.rows, s.out}, 3, 1e-5);
      const Array weight = Array::Random(DType::bf16, {s.out, s.in}, 2, 0.02);
      const Array before = Array::Random(DType::f32, {s.out, s.in}, 4, 1e-4);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array dx(DType::bf16, {s.rows, s.in}), dw = accumulate ? before : Array(DType::f32, {s.out, s.in});
        Fp8LinearBackwardInput(context, dy, weight, dx);
        Fp8LinearBackwardWeight(context, dy, x, dw, accumulate);
        return std::vector<Array>{dx, dw};
      });
      const Fp8Matrix d = QuantizeReference(kE5M2, dy), w = QuantizeReference(kE4M3, weight);
      const Fp8Matrix a = QuantizeReference(kE4M3, x);
      const size_t rows = Z(s.rows), in = Z(s.in), out = Z(s.out);
      CheckBoth("dx", got[0], reference::MatMul(rows, in, out, d.values, false, w.values, false),
                reference::MatMul(rows, in, out, dy.values(), false, weight.values(), false),
                Fp8ProductBound(rows, in, out, dy.values(), d.errors, false, weight.values(), w.errors, false));
      Values quantized = reference::MatMul(out, in, rows, d.values, true, a.values, false);
      Values exact = reference::MatMul(out, in, rows, dy.values(), true, x.values(), false);
      for (size_t i = 0; accumulate && i < exact.size(); ++i) quantized[i] += before[i], exact[i] += before[i];
      CheckBoth("dw", got[1], quantized, exact,
                Fp8ProductBound(out, in, rows, dy.values(), d.errors, true, x.values(), a.errors, false));
    }
}

TEST_CASE("fp8: shapes without 8-bit products, and tensors that do not fit, are refused") {
  CHECK(Fp8Multiplies(16, 32, 48));
  for (const LayerSize& s : {LayerSize{8, 16, 16}, LayerSize{16, 24, 16}, LayerSize{16, 16, 17}, LayerSize{0, 16, 16}})
    CHECK_FALSE(Fp8Multiplies(s.rows, s.in, s.out));
  Array x(DType::bf16, {16, 32}), weight(DType::bf16, {48, 32}), y(DType::bf16, {16, 48}), odd(DType::bf16, {16, 40});
  Array wide(DType::f32, {16, 48}), bias(DType::bf16, {48}), dw(DType::f32, {48, 32});
  CHECK_NOTHROW(Fp8LinearForward({}, x, weight, bias, y));
  CHECK_THROWS_AS(Fp8LinearForward({}, x, weight, {}, odd), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearForward({}, x, x, {}, y), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearForward({}, x, weight, x, y), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearForward({}, x, weight, {}, wide), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearBackwardInput({}, y, x, x), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearBackwardWeight({}, y, x, weight, false), std::invalid_argument);
  CHECK_NOTHROW(Fp8LinearBackwardWeight({}, y, x, dw, false));
  Array codes(DType::f8_e4m3, {16, 32}), inverse(DType::f32, {1}), largest(DType::i32, {1});
  CHECK_THROWS_AS(QuantizeFp8({}, x, true, codes, inverse, largest), std::invalid_argument);
  CHECK_THROWS_AS(QuantizeFp8({}, wide, false, codes, inverse, largest), std::invalid_argument);
  CHECK_THROWS_AS(QuantizeFp8({}, x, false, x, inverse, largest), std::invalid_argument);
  Array gradients(DType::f8_e5m2, {16, 32});  // no library multiplies two of E5M2
  CHECK_THROWS_AS(MatMulFp8({}, codes, inverse, gradients, inverse, {}, Array(DType::f32, {16, 16}), false),
                  std::invalid_argument);
  CHECK(Fp8LinearWorkspaceBytes(16, 32, 48) == MatMulWorkspaceBytes() + 4 * 256 + 768 + 1536);
}

}  // namespace
}  // namespace ds::test
