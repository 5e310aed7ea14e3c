// GELU and SwiGLU: forward against the plain formulas, backward in f64 against central differences, others against f64.
#include "kernels/activation.h"

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

const Shape kShapes[] = {{1, 1}, {1, 7}, {13, 1}, {3, 17}, {2, 5, 2051}, {67, 131}};
const GeluKind kKinds[] = {GeluKind::exact, GeluKind::tanh};

double ReferenceGelu(GeluKind kind, double x) {
  return kind == GeluKind::exact ? reference::GeluExact(x) : reference::GeluTanh(x);
}

Array Gelu(GeluKind kind, const Array& x) {
  return OnAnyThreads([&](const KernelContext& context) {
    Array y(x.dtype(), x.shape());
    GeluForward(context, kind, x, y);
    return std::vector<Array>{y};
  })[0];
}

Array GeluGradient(GeluKind kind, const Array& dy, const Array& x) {
  return OnAnyThreads([&](const KernelContext& context) {
    Array dx(x.dtype(), x.shape());
    GeluBackward(context, kind, dy, x, dx);
    return std::vector<Array>{dx};
  })[0];
}

/// [N, F] -> [N, 2F]
Shape Doubled(const Shape& s) { return s.rank() == 2 ? Shape{s[0], 2 * s[1]} : Shape{s[0], s[1], 2 * s[2]}; }

Array Swiglu(const Array& gate_up, const Shape& s) {
  return OnAnyThreads([&](const KernelContext& context) {
    Array y(gate_up.dtype(), s);
    SwigluForward(context, gate_up, y);
    return std::vector<Array>{y};
  })[0];
}

Array SwigluGradient(const Array& dy, const Array& gate_up) {
  return OnAnyThreads([&](const KernelContext& context) {
    Array d(gate_up.dtype(), gate_up.shape());
    SwigluBackward(context, dy, gate_up, d);
    return std::vector<Array>{d};
  })[0];
}

size_t Width(const Shape& s) { return static_cast<size_t>(s[s.rank() - 1]); }

TEST_CASE("GELU forward agrees with the formula") {
  for (GeluKind kind : kKinds)
    for (const Shape& s : kShapes)
      for (const Precision& p : kPrecisions) {
        CAPTURE(static_cast<int>(kind), s.str(), NameOf(p.dtype));
        const Array x = Array::Random(p.dtype, s, 1, 2);
        CheckClose("y", Gelu(kind, x), reference::Map(x.values(), [=](double v) { return ReferenceGelu(kind, v); }),
                   p.tolerance);
      }
}

TEST_CASE("GELU backward agrees with central differences in f64 and with f64 in the others") {
  for (GeluKind kind : kKinds)
    for (const Shape& s : kShapes)
      for (const Precision& p : kPrecisions) {
        CAPTURE(static_cast<int>(kind), s.str(), NameOf(p.dtype));
        const Array x = Array::Random(p.dtype, s, 1, 2), dy = Array::Random(p.dtype, s, 2);
        const Array got = GeluGradient(kind, dy, x);
        if (p.dtype == DType::f64) {
          Values want = reference::Map(x.values(), [=](double v) {
            return (ReferenceGelu(kind, v + 1e-5) - ReferenceGelu(kind, v - 1e-5)) / 2e-5;
          });
          for (size_t i = 0; i < want.size(); ++i) want[i] *= dy[i];
          CheckClose("dx", got, want, kDifferenceTolerance);
        }
        CheckClose("dx", got, GeluGradient(kind, dy.To(DType::f64), x.To(DType::f64)).values(), p.tolerance);
      }
}

TEST_CASE("GELU is finite and saturates for large inputs") {
  const Array x = Array::Of(DType::f32, {6}, {-1e30, -100, -12, 12, 100, 1e30});
  const Array one = Array::Of(DType::f32, {6}, Values(6, 1));
  for (GeluKind kind : kKinds) {
    CheckClose("y", Gelu(kind, x), {0, 0, 0, 12, 100, 1e30}, 1e-6);
    CheckClose("dx", GeluGradient(kind, one, x), {0, 0, 0, 1, 1, 1}, 1e-6);
  }
}

TEST_CASE("SwiGLU forward agrees with the formula") {
  for (const Shape& s : kShapes)
    for (const Precision& p : kPrecisions) {
      CAPTURE(s.str(), NameOf(p.dtype));
      const Array gate_up = Array::Random(p.dtype, Doubled(s), 1, 2);
      CheckClose("y", Swiglu(gate_up, s), reference::Swiglu(Width(s), gate_up.values()), p.tolerance);
    }
}

TEST_CASE("SwiGLU backward agrees with central differences in f64 and with f64 in the others") {
  for (const Shape& s : {Shape{1, 1}, Shape{7, 5}}) {
    const Array gate_up = Array::Random(DType::f64, Doubled(s), 1, 2), dy = Array::Random(DType::f64, s, 2);
    CheckClose("dgate_up", SwigluGradient(dy, gate_up),
               CentralDifferences(gate_up.values(),
                                  [&](const Values& v) { return Dot(reference::Swiglu(Width(s), v), dy.values()); }),
               kDifferenceTolerance);
  }
  for (const Shape& s : kShapes)
    for (const Precision& p : kPrecisions) {
      CAPTURE(s.str(), NameOf(p.dtype));
      const Array gate_up = Array::Random(p.dtype, Doubled(s), 1, 2), dy = Array::Random(p.dtype, s, 2);
      CheckClose("dgate_up", SwigluGradient(dy, gate_up),
                 SwigluGradient(dy.To(DType::f64), gate_up.To(DType::f64)).values(), p.tolerance);
    }
}

TEST_CASE("activations may work in place") {
  for (const Precision& p : kPrecisions) {
    const Array x = Array::Random(p.dtype, {5, 2100}, 1), dy = Array::Random(p.dtype, {5, 2100}, 2);
    Array y = x, dx = dy;
    GeluForward({}, GeluKind::exact, y, y);
    CHECK(y == Gelu(GeluKind::exact, x));
    GeluBackward({}, GeluKind::tanh, dx, x, dx);
    CHECK(dx == GeluGradient(GeluKind::tanh, dy, x));
    const Array gate_up = Array::Random(p.dtype, {5, 4200}, 3);
    Array dgate_up = gate_up;
    SwigluBackward({}, dy, dgate_up, dgate_up);
    CHECK(dgate_up == SwigluGradient(dy, gate_up));
  }
}

TEST_CASE("activations refuse tensors that do not fit") {
  Array x(DType::f32, {4, 8}), y(DType::f32, {4, 7}), z(DType::bf16, {4, 8});
  CHECK_THROWS_AS(GeluForward({}, GeluKind::tanh, x, y), std::invalid_argument);
  CHECK_THROWS_AS(GeluForward({}, GeluKind::tanh, x, z), std::invalid_argument);
  CHECK_THROWS_AS(SwigluForward({}, x, x), std::invalid_argument);
  CHECK_THROWS_AS(SwigluBackward({}, x, x, x), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
