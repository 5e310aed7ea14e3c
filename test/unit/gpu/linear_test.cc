// Linear layers fused with GELU, and with the sum with the residual stream, on the GPU against fp64.
#include "kernels/linear.h"

#include <thread>

#include "kernels/matmul.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/reference.h"

namespace ds::test {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

double Gelu(GeluKind kind, double x) {
  return kind == GeluKind::exact ? reference::GeluExact(x) : reference::GeluTanh(x);
}
double Derivative(GeluKind kind, double x) { return (Gelu(kind, x + 1e-6) - Gelu(kind, x - 1e-6)) / 2e-6; }

/// Of fused 16-bit layers: how far the library's GELU may be off, and its derivative. It may take its tanh from the
/// GPU's instruction, whose relative error is up to 2^-11 (PTX ISA, tanh.approx.f32): that is half a rounding of bf16,
/// but four of f16. With t = tanh(u(x)): GELU is x (1 + t) / 2, its derivative (1 + t) / 2 + x (1 - t^2) u'(x) / 2.
constexpr double kTanhError = 0x1p-11, kSlope = 0.7978845608028654;  // sqrt(2 / pi)
double TanhOf(double x) { return std::tanh(kSlope * (x + 0.044715 * x * x * x)); }
double GeluError(double x) { return 0.5 * std::fabs(x * TanhOf(x)) * kTanhError; }
double DerivativeError(double x) {
  const double t = TanhOf(x);
  return std::fabs((0.5 - x * t * kSlope * (1 + 0.134145 * x * x)) * t) * kTanhError;
}

struct Size {
  int64_t rows, in, features;
};
const Size kFused[] = {{1, 8, 8}, {33, 40, 72}, {64, 768, 3072}, {200, 250, 1000}};
const Size kAny[] = {{1, 8, 8}, {33, 40, 72}, {100, 50, 250}, {7, 33, 9}};

/// a op(b), [rows, features], by the CPU's fp64 product on all cores, which has its own test against the formula.
Values InDouble(const Array& a, const Array& b, bool transpose_b, const Size& s) {
  const Array wide_a = a.To(DType::f64), wide_b = b.To(DType::f64), c(DType::f64, {s.rows, s.features});
  MatMul({static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))}, wide_a, wide_b, c,
         {false, transpose_b, false, {}, 1.0f});
  return c.values();
}

void CompareForward(const KernelContext& context, const Precision& p, GeluKind kind, const Size& s, int64_t offset,
                    bool with_bias) {
  CAPTURE(NameOf(p.dtype), static_cast<int>(kind), s.rows, s.in, s.features, offset, with_bias);
  const double spread = 1 / std::sqrt(static_cast<double>(s.in));
  const Array x = Array::Random(p.dtype, {s.rows, s.in}, 1, 2);
  const Array weight = Array::Random(p.dtype, {s.features, s.in}, 2, spread);
  const Array bias = Array::Random(p.dtype, {s.features}, 3);
  const GpuArray on_gpu(bias, offset), in(x, offset), w(weight, offset);
  const auto run = [&] {
    const GpuArray pre(p.dtype, {s.rows, s.features}, offset), y(p.dtype, {s.rows, s.features}, offset);
    LinearGeluForward(context, kind, in, w, with_bias ? on_gpu.tensor() : Tensor(), pre, y);
    return std::vector<Array>{pre.Host(), y.Host()};
  };
  const auto got = run();
  CHECK(run() == got);
  Values want = InDouble(x, weight, true, s);
  if (with_bias)
    for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % Z(s.features)];
  CheckClose("pre", got[0], want, p.tolerance);
  // Off by a rounding of pre, where it is not fused, and one of y; the slope of GELU is at most 1.13.
  CheckClose("y", got[1], reference::Map(want, [kind](double v) { return Gelu(kind, v); }), 2.5 * p.tolerance,
             SizeOf(p.dtype) == 2 ? reference::Map(want, GeluError) : Values());
}

void CompareBackward(const KernelContext& context, const Precision& p, GeluKind kind, const Size& s, int64_t offset) {
  CAPTURE(NameOf(p.dtype), static_cast<int>(kind), s.rows, s.in, s.features, offset);
  const Array dy = Array::Random(p.dtype, {s.rows, s.in}, 1);
  const Array weight = Array::Random(p.dtype, {s.in, s.features}, 2);
  const Array pre = Array::Random(p.dtype, {s.rows, s.features}, 3, 2);
  const GpuArray in(dy, offset), w(weight, offset), saved(pre, offset);
  const auto run = [&] {
    const GpuArray dpre(p.dtype, {s.rows, s.features}, offset);
    LinearGeluBackwardInput(context, kind, in, w, saved, dpre);
    return dpre.Host();
  };
  const Array got = run();
  CHECK(run() == got);
  CHECK(saved.Host() == pre);
  Values want = InDouble(dy, weight, false, s);
  Values also(SizeOf(p.dtype) == 2 ? want.size() : 0);
  for (size_t i = 0; i < also.size(); ++i) also[i] = std::fabs(want[i]) * DerivativeError(pre[i]);
  for (size_t i = 0; i < want.size(); ++i) want[i] *= Derivative(kind, pre[i]);
  CheckClose("dpre", got, want, std::max(2.5 * p.tolerance, 1e-8), also);  // the differences are no better
}

TEST_CASE("GPU: linear layers and GELU in one kernel agree with fp64 and repeat bit for bit", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (const Precision& p : kPrecisions)
    for (const Size& s : kFused) {
      if (SizeOf(p.dtype) != 2 || LeftOut(s.in * s.features)) continue;
      for (bool with_bias : {true, false}) CompareForward(context, p, GeluKind::tanh, s, 0, with_bias);
      CompareBackward(context, p, GeluKind::tanh, s, 0);
    }
}

TEST_CASE("GPU: linear layers and GELU one after the other agree with fp64 and repeat bit for bit", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (const Precision& p : kPrecisions)
    for (GeluKind kind : {GeluKind::exact, GeluKind::tanh})
      for (const Size& s : kAny)
        for (int64_t offset : {0, 1}) {
          for (bool with_bias : {true, false}) CompareForward(context, p, kind, s, offset, with_bias);
          CompareBackward(context, p, kind, s, offset);
        }
}

void CompareAdd(const KernelContext& context, const Precision& p, const Size& s, int64_t offset, bool with_bias) {
  if (LeftOut(s.in * s.features)) return;
  CAPTURE(NameOf(p.dtype), s.rows, s.in, s.features, offset, with_bias);
  const double spread = 1 / std::sqrt(static_cast<double>(s.in));
  const Array x = Array::Random(p.dtype, {s.rows, s.in}, 1), bias = Array::Random(p.dtype, {s.features}, 3);
  const Array weight = Array::Random(p.dtype, {s.features, s.in}, 2, spread);
  const Array residual = Array::Random(p.dtype, {s.rows, s.features}, 4, 3);
  const GpuArray in(x, offset), w(weight, offset), b(bias, offset), stream(residual, offset);
  const auto run = [&] {
    const GpuArray y(p.dtype, {s.rows, s.features}, offset);
    LinearAddForward(context, in, w, with_bias ? b.tensor() : Tensor(), stream, y);
    return y.Host();
  };
  const Array got = run();
  CHECK(run() == got);
  CHECK(stream.Host() == residual);
  Values want = InDouble(x, weight, true, s);
  for (size_t i = 0; i < want.size(); ++i) want[i] += (with_bias ? bias[i % Z(s.features)] : 0) + residual[i];
  CheckClose("y", got, want, 2 * p.tolerance);  // rounded twice where it is not fused
}

TEST_CASE("GPU: linear layers added to the residual stream agree with fp64 and repeat bit for bit", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (const Precision& p : kPrecisions)
    for (const Size* sizes : {kFused, kAny})
      for (int i = 0; i < 4; ++i)
        for (int64_t offset : {0, 1})
          for (bool with_bias : {true, false}) CompareAdd(context, p, sizes[i], offset, with_bias);
}

TEST_CASE("GPU: the fused kernels meet zeros, large values and NaN as the separate ones do", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  const int64_t n = 8, f = 16;
  for (DType dtype : {DType::bf16, DType::f16}) {
    CAPTURE(NameOf(dtype));
    Array identity = Array::Of(dtype, {n, n}, Values(Z(n * n)));
    for (int64_t i = 0; i < n; ++i) identity.Set(Z(i * n + i), 1);
    Array weight = Array::Random(dtype, {f, n}, 1, 40);  // x is the identity, so pre is its transpose
    const double specials[] = {0, 3e4, -3e4, NAN};
    for (size_t j = 0; j < std::size(specials); ++j) weight.Set(j * Z(n), specials[j]);  // in the first row of pre
    const GpuArray pre(dtype, {n, f}), y(dtype, {n, f});
    LinearGeluForward(context, GeluKind::tanh, GpuArray(identity), GpuArray(weight), {}, pre, y);
    const Array saved = pre.Host(), got = y.Host();
    CHECK(saved[0] == 0);
    CHECK(got[0] == 0);
    CHECK(got[1] == saved[1]);
    CHECK(got[2] == 0);
    CHECK(std::isnan(got[3]));

    const GpuArray dpre(dtype, {n, f});
    const Array ones = Array::Of(dtype, {n, f}, Values(Z(n * f), 1));
    LinearGeluBackwardInput(context, GeluKind::tanh, GpuArray(identity), GpuArray(ones), pre, dpre);
    const Array slope = dpre.Host();
    CHECK(slope[0] == 0.5);
    CHECK(slope[1] == 1);
    CHECK(std::fabs(slope[2]) < 1e-20);  // the separate kernels bound the exponential: 3e4 times it is some 1e-27
    CHECK(std::isnan(slope[3]));
  }
}

}  // namespace
}  // namespace ds::test
