// Linear layers fused with GELU, and with the sum with the residual stream.
#include "kernels/linear.h"

#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

double Gelu(GeluKind kind, double x) {
  return kind == GeluKind::exact ? reference::GeluExact(x) : reference::GeluTanh(x);
}

TEST_CASE("a linear layer with GELU agrees with the formula, with a bias or without") {
  for (const Precision& p : kPrecisions)
    for (GeluKind kind : {GeluKind::exact, GeluKind::tanh})
      for (bool with_bias : {false, true}) {
        CAPTURE(NameOf(p.dtype), static_cast<int>(kind), with_bias);
        const int64_t n = 13, k = 40, f = 70;
        const Array x = Array::Random(p.dtype, {n, k}, 1), weight = Array::Random(p.dtype, {f, k}, 2, 0.2);
        const Array bias = Array::Random(p.dtype, {f}, 3);
        const auto got = OnAnyThreads([&](const KernelContext& context) {
          Array pre(p.dtype, {n, f}), y(p.dtype, {n, f});
          LinearGeluForward(context, kind, x, weight, with_bias ? bias.tensor() : Tensor(), pre, y);
          return std::vector<Array>{pre, y};
        });
        Values want = reference::MatMul(Z(n), Z(f), Z(k), x.values(), false, weight.values(), true);
        if (with_bias)
          for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % Z(f)];
        CheckClose("pre", got[0], want, p.tolerance);
        CheckClose("y", got[1], reference::Map(got[0].values(), [kind](double v) { return Gelu(kind, v); }),
                   p.tolerance);
      }
}

TEST_CASE("its backward agrees with central differences in f64 and with f64 in the others") {
  const int64_t n = 5, h = 12, f = 9;
  for (GeluKind kind : {GeluKind::exact, GeluKind::tanh})
    for (const Precision& p : kPrecisions) {
      CAPTURE(NameOf(p.dtype), static_cast<int>(kind));
      const Array dy = Array::Random(p.dtype, {n, h}, 1), weight = Array::Random(p.dtype, {h, f}, 2);
      const Array pre = Array::Random(p.dtype, {n, f}, 3);
      Array dpre(p.dtype, {n, f});
      LinearGeluBackwardInput({}, kind, dy, weight, pre, dpre);
      // loss = sum(dy * (gelu(pre) W^T))
      const Values want = CentralDifferences(pre.values(), [&](const Values& v) {
        const Values y = reference::Map(v, [kind](double x) { return Gelu(kind, x); });
        return Dot(reference::MatMul(Z(n), Z(h), Z(f), y, false, weight.values(), true), dy.values());
      });
      CheckClose("dpre", dpre, want, p.dtype == DType::f64 ? kDifferenceTolerance : 2 * p.tolerance);
    }
}

TEST_CASE("a linear layer added to the residual stream agrees with fp64, and with the separate kernels bit for bit") {
  for (const Precision& p : kPrecisions)
    for (bool with_bias : {false, true}) {
      CAPTURE(NameOf(p.dtype), with_bias);
      const int64_t n = 13, k = 40, f = 70;
      const Array x = Array::Random(p.dtype, {n, k}, 1), weight = Array::Random(p.dtype, {f, k}, 2, 0.2);
      const Array bias = Array::Random(p.dtype, {f}, 3), residual = Array::Random(p.dtype, {n, f}, 4, 3);
      const Tensor added = with_bias ? bias.tensor() : Tensor();
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array y(p.dtype, {n, f});
        LinearAddForward(context, x, weight, added, residual, y);
        return std::vector<Array>{y};
      });
      Values want = reference::MatMul(Z(n), Z(f), Z(k), x.values(), false, weight.values(), true);
      for (size_t i = 0; i < want.size(); ++i) want[i] += (with_bias ? bias[i % Z(f)] : 0) + residual[i];
      CheckClose("y", got[0], want, 2 * p.tolerance);  // rounded twice

      MatMulOptions options;
      options.transpose_b = true, options.bias = added;
      Array product(p.dtype, {n, f}), sum(p.dtype, {n, f});
      MatMul({}, x, weight, product, options);
      Add({}, residual, product, sum);
      CHECK(got[0] == sum);
    }
}

TEST_CASE("linear layers with GELU refuse tensors that do not fit") {
  Array x(DType::f32, {4, 5}), weight(DType::f32, {6, 5}), pre(DType::f32, {4, 6}), out(DType::f32, {4, 6});
  Array half(DType::bf16, {4, 6});
  Array bias(DType::f32, {5}), dy(DType::f32, {4, 3}), behind(DType::f32, {3, 6});
  CHECK_NOTHROW(LinearGeluForward({}, GeluKind::tanh, x, weight, {}, pre, out));
  CHECK_THROWS_AS(LinearGeluForward({}, GeluKind::tanh, x, weight, bias, pre, out), std::invalid_argument);
  CHECK_THROWS_AS(LinearGeluForward({}, GeluKind::tanh, x, weight, {}, half, out), std::invalid_argument);
  CHECK_THROWS_AS(LinearGeluForward({}, GeluKind::tanh, x, x, {}, pre, out), std::invalid_argument);
  CHECK_NOTHROW(LinearGeluBackwardInput({}, GeluKind::tanh, dy, behind, pre, out));
  CHECK_THROWS_AS(LinearGeluBackwardInput({}, GeluKind::tanh, dy, weight, pre, out), std::invalid_argument);
  CHECK_THROWS_AS(LinearGeluBackwardInput({}, GeluKind::tanh, dy, behind, half, out), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
