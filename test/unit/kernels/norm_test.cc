// Layer and root-mean-square normalisation: forward against the plain formula, backward in f64 against central
// differences of that formula and in the other dtypes against f64.
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

constexpr double kEps = 1e-5;
const Shape kShapes[] = {{1, 1}, {1, 16}, {5, 1}, {3, 17}, {131, 64}, {67, 97}, {2, 3, 768}, {33, 1021}};

int64_t Width(const Shape& s) { return s[s.rank() - 1]; }
int64_t Height(const Shape& s) { return s.numel() / Width(s); }

/// Both normalisations behind one face, so that one test body serves both. RMSNorm has no bias and no mean.
struct LayerNorm {
  static constexpr bool has_bias = true;
  /// {y, mean, rstd}
  static std::vector<Array> Forward(const KernelContext& context, const Array& x, const Array& w, const Array& b) {
    const DType statistics = StatisticsType(x.dtype());
    std::vector<Array> r{{x.dtype(), x.shape()}, {statistics, {Height(x.shape())}}, {statistics, {Height(x.shape())}}};
    LayerNormForward(context, x, w, b, kEps, r[0], r[1], r[2]);
    return r;
  }
  static void BackwardInput(const KernelContext& context, const Array& dy, const Array& x, const Array& w,
                            const std::vector<Array>& forward, Tensor residual, const Array& dx) {
    LayerNormBackwardInput(context, dy, x, w, forward[1], forward[2], residual, dx);
  }
  static void BackwardWeight(const KernelContext& context, const Array& dy, const Array& x,
                             const std::vector<Array>& forward, const Array& dw, const Array& db, bool accumulate) {
    LayerNormBackwardWeight(context, dy, x, forward[1], forward[2], dw, db, accumulate);
  }
  static reference::NormResult Reference(const Shape& s, const Values& x, const Values& w, const Values& b) {
    return reference::LayerNorm(static_cast<size_t>(Width(s)), x, w, b, kEps);
  }
};

struct RmsNorm {
  static constexpr bool has_bias = false;
  static std::vector<Array> Forward(const KernelContext& context, const Array& x, const Array& w, const Array&) {
    std::vector<Array> r{{x.dtype(), x.shape()}, {x.dtype(), {0}}, {StatisticsType(x.dtype()), {Height(x.shape())}}};
    RmsNormForward(context, x, w, kEps, r[0], r[2]);
    return r;
  }
  static void BackwardInput(const KernelContext& context, const Array& dy, const Array& x, const Array& w,
                            const std::vector<Array>& forward, Tensor residual, const Array& dx) {
    RmsNormBackwardInput(context, dy, x, w, forward[2], residual, dx);
  }
  static void BackwardWeight(const KernelContext& context, const Array& dy, const Array& x,
                             const std::vector<Array>& forward, const Array& dw, const Array&, bool accumulate) {
    RmsNormBackwardWeight(context, dy, x, forward[2], dw, accumulate);
  }
  static reference::NormResult Reference(const Shape& s, const Values& x, const Values& w, const Values&) {
    return reference::RmsNorm(static_cast<size_t>(Width(s)), x, w, kEps);
  }
};

struct Inputs {
  Array x, w, b, dy, residual;
  Inputs(DType dtype, const Shape& s)
      : x(Array::Random(dtype, s, 1, 2, 0.5)),
        w(Array::Random(dtype, {Width(s)}, 2, 0.3, 1)),
        b(Array::Random(dtype, {Width(s)}, 3)),
        dy(Array::Random(dtype, s, 4)),
        residual(Array::Random(dtype, s, 5)) {}
};

struct Gradients {
  Array dx, dw, db;
};

/// Gradients with a residual, and with dw and db accumulated onto ones.
template <class Norm>
Gradients Backward(const Inputs& in) {
  const auto forward = Norm::Forward({}, in.x, in.w, in.b);
  auto all = OnAnyThreads([&](const KernelContext& context) {
    const DType sums = StatisticsType(in.x.dtype());
    Array dx(in.x.dtype(), in.x.shape()), dw(sums, in.w.shape()), db(sums, in.w.shape());
    Norm::BackwardInput(context, in.dy, in.x, in.w, forward, in.residual, dx);
    Norm::BackwardWeight(context, in.dy, in.x, forward, dw, db, false);
    return std::vector<Array>{dx, dw, db};
  });
  return {all[0], all[1], all[2]};
}

template <class Norm>
void TestForward() {
  for (const Shape& s : kShapes)
    for (const Precision& p : kPrecisions) {
      CAPTURE(s.str(), NameOf(p.dtype));
      const Inputs in(p.dtype, s);
      const auto got = OnAnyThreads([&](const KernelContext& c) { return Norm::Forward(c, in.x, in.w, in.b); });
      const auto want = Norm::Reference(s, in.x.values(), in.w.values(), in.b.values());
      const double statistics = p.dtype == DType::f64 ? 1e-12 : 2e-6;
      CheckClose("y", got[0], want.y, p.tolerance);
      if (Norm::has_bias) CheckClose("mean", got[1], want.mean, statistics);
      CheckClose("rstd", got[2], want.rstd, statistics);
    }
}

template <class Norm>
void TestBackwardAgainstDifferences() {
  for (const Shape& s : {Shape{1, 2}, Shape{5, 1}, Shape{7, 17}, Shape{2, 3, 24}}) {
    CAPTURE(s.str());
    const Inputs in(DType::f64, s);
    const auto loss = [&](const Values& x, const Values& w, const Values& b) {
      return Dot(Norm::Reference(s, x, w, b).y, in.dy.values());
    };
    const Values x = in.x.values(), w = in.w.values(), b = in.b.values();
    Values dx = CentralDifferences(x, [&](const Values& v) { return loss(v, w, b); });
    for (size_t i = 0; i < dx.size(); ++i) dx[i] += in.residual[i];
    const Gradients got = Backward<Norm>(in);
    CheckClose("dx", got.dx, dx, kDifferenceTolerance);
    CheckClose("dw", got.dw, CentralDifferences(w, [&](const Values& v) { return loss(x, v, b); }),
               kDifferenceTolerance);
    if (Norm::has_bias)
      CheckClose("db", got.db, CentralDifferences(b, [&](const Values& v) { return loss(x, w, v); }),
                 kDifferenceTolerance);
  }
}

template <class Norm>
void TestBackwardInEveryDtype() {
  for (const Shape& s : kShapes)
    for (const Precision& p : kPrecisions) {
      CAPTURE(s.str(), NameOf(p.dtype));
      const Inputs in(p.dtype, s);
      Inputs wide = in;
      for (Array* a : {&wide.x, &wide.w, &wide.b, &wide.dy, &wide.residual}) *a = a->To(DType::f64);
      const Gradients got = Backward<Norm>(in), want = Backward<Norm>(wide);
      const double sums = p.dtype == DType::f64 ? 1e-13 : 1e-5;
      CheckClose("dx", got.dx, want.dx.values(), 2 * p.tolerance);
      CheckClose("dw", got.dw, want.dw.values(), sums);
      if (Norm::has_bias) CheckClose("db", got.db, want.db.values(), sums);
    }
}

template <class Norm>
void TestResidualAndAccumulation() {
  const Inputs in(DType::f32, {70, 100});
  const auto forward = Norm::Forward({}, in.x, in.w, in.b);
  Array with(DType::f32, in.x.shape()), without(DType::f32, in.x.shape()), aliased = in.residual;
  Norm::BackwardInput({}, in.dy, in.x, in.w, forward, in.residual, with);
  Norm::BackwardInput({}, in.dy, in.x, in.w, forward, {}, without);
  Norm::BackwardInput({}, in.dy, in.x, in.w, forward, aliased, aliased);
  CHECK(aliased == with);
  Values sum = without.values();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += in.residual[i];
  CheckClose("dx", with, sum, 2e-6);

  Array dw(DType::f32, {100}), db(DType::f32, {100});
  Norm::BackwardWeight({}, in.dy, in.x, forward, dw, db, false);
  Array dw2 = in.w, db2 = in.b;
  Norm::BackwardWeight({}, in.dy, in.x, forward, dw2, db2, true);
  for (size_t i = 0; i < 100; ++i) {
    REQUIRE(dw2[i] == static_cast<float>(in.w[i]) + static_cast<float>(dw[i]));
    if (Norm::has_bias) REQUIRE(db2[i] == static_cast<float>(in.b[i]) + static_cast<float>(db[i]));
  }
}

TEST_CASE("layer norm forward agrees with the formula") { TestForward<LayerNorm>(); }
TEST_CASE("RMS norm forward agrees with the formula") { TestForward<RmsNorm>(); }
TEST_CASE("layer norm backward agrees with central differences") { TestBackwardAgainstDifferences<LayerNorm>(); }
TEST_CASE("RMS norm backward agrees with central differences") { TestBackwardAgainstDifferences<RmsNorm>(); }
TEST_CASE("layer norm backward agrees with f64 in every dtype") { TestBackwardInEveryDtype<LayerNorm>(); }
TEST_CASE("RMS norm backward agrees with f64 in every dtype") { TestBackwardInEveryDtype<RmsNorm>(); }
TEST_CASE("layer norm adds the residual and accumulates") { TestResidualAndAccumulation<LayerNorm>(); }
TEST_CASE("RMS norm adds the residual and accumulates") { TestResidualAndAccumulation<RmsNorm>(); }

TEST_CASE("layer norm keeps its precision far from zero") {
  const Array x = Array::Random(DType::f32, {3, 512}, 1, 1, 1000);
  const Array w = Array::Of(DType::f32, {512}, Values(512, 1)), b = Array::Of(DType::f32, {512}, Values(512, 0));
  const auto got = LayerNorm::Forward({}, x, w, b);
  CheckClose("y", got[0], LayerNorm::Reference(x.shape(), x.values(), w.values(), b.values()).y, 2e-4);
}

TEST_CASE("norms refuse tensors that do not fit") {
  Array x(DType::f32, {4, 8}), w(DType::f32, {8}), short_w(DType::f32, {7}), w16(DType::bf16, {8}), s(DType::f32, {4});
  CHECK_THROWS_AS(LayerNormForward({}, x, short_w, w, kEps, x, s, s), std::invalid_argument);
  CHECK_THROWS_AS(LayerNormForward({}, x, w16, w, kEps, x, s, s), std::invalid_argument);
  CHECK_THROWS_AS(LayerNormForward({}, x, w, w, kEps, x, w, s), std::invalid_argument);
  CHECK_THROWS_AS(RmsNormForward({}, x, short_w, kEps, x, s), std::invalid_argument);
  CHECK_THROWS_AS(RmsNormBackwardWeight({}, x, x, s, w16, false), std::invalid_argument);
  Tensor elsewhere = x;
  elsewhere.device.kind = DeviceKind::cuda;
  CHECK_THROWS_AS(LayerNormForward({}, elsewhere, w, w, kEps, x, s, s), std::invalid_argument);
  CHECK_THROWS_AS(RmsNormForward({}, elsewhere, w, kEps, x, s), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
