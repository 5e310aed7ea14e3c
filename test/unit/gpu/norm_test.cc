// Layer and root-mean-square normalisation on the GPU: forward against the plain formula in fp64, gradients of inputs
// against the CPU in fp64, gradients of weights to the CPU's bits.
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/reference.h"

namespace ds::test {
namespace {

constexpr double kEps = 1e-5;
const int64_t kColumns[] = {1, 7, 768, 1000, 4096, 8192};
const int64_t kRows[] = {1, 3, 133, 1029};

struct Inputs {
  Array x, w, b, dy, residual;
  Inputs(DType dtype, const Shape& s)
      : x(Array::Random(dtype, s, 1, 2, 0.5)),
        w(Array::Random(dtype, {s[1]}, 2, 0.3, 1)),
        b(Array::Random(dtype, {s[1]}, 3)),
        dy(Array::Random(dtype, s, 4)),
        residual(Array::Random(dtype, s, 5)) {}
  Inputs To(DType dtype) const {
    Inputs to = *this;
    for (Array* a : {&to.x, &to.w, &to.b, &to.dy, &to.residual}) *a = a->To(dtype);
    return to;
  }
};

/// body(shape, dtype, tolerance, offset of the arrays in elements): with an offset nothing is aligned.
template <class Body>
void ForEachCase(const Body& body) {
  for (int64_t columns : kColumns)
    for (int64_t rows : kRows)
      for (const Precision& p : kPrecisions) {
        if (rows * columns > 1'200'000) continue;  // 1,029 rows of the narrow ones, 133 of the wide ones
        if (LeftOut(rows * columns)) continue;
        const Shape s{rows, columns};
        CAPTURE(s.str(), NameOf(p.dtype));
        body(s, p, 0);
        if (rows == 3) body(s, p, 1);
      }
  if (!LeftOut(2 * 50'001)) body(Shape{2, 50'001}, kPrecisions[1], 0);  // more than the threads of a row keep
  body(Shape{0, 16}, kPrecisions[1], 0);
}

double StatisticsTolerance(DType dtype) { return dtype == DType::f64 ? 1e-12 : 2e-6; }

TEST_CASE("GPU: LayerNorm's forward is the formula") {
  ForEachCase([](const Shape& s, const Precision& p, int64_t offset) {
    const GpuContext context;
    const Inputs in(p.dtype, s);
    const GpuArray y(p.dtype, s, offset), mean(StatisticsType(p.dtype), {s[0]}), rstd(StatisticsType(p.dtype), {s[0]});
    LayerNormForward(context, GpuArray(in.x, offset), GpuArray(in.w, offset), GpuArray(in.b, offset), kEps, y, mean,
                     rstd);
    const auto want =
        reference::LayerNorm(static_cast<size_t>(s[1]), in.x.values(), in.w.values(), in.b.values(), kEps);
    CheckClose("y", y.Host(), want.y, p.tolerance);
    CheckClose("mean", mean.Host(), want.mean, StatisticsTolerance(p.dtype));
    CheckClose("rstd", rstd.Host(), want.rstd, StatisticsTolerance(p.dtype));
  });
}

TEST_CASE("GPU: RMSNorm's forward is the formula") {
  ForEachCase([](const Shape& s, const Precision& p, int64_t offset) {
    const GpuContext context;
    const Inputs in(p.dtype, s);
    const GpuArray y(p.dtype, s, offset), rstd(StatisticsType(p.dtype), {s[0]});
    RmsNormForward(context, GpuArray(in.x, offset), GpuArray(in.w, offset), kEps, y, rstd);
    const auto want = reference::RmsNorm(static_cast<size_t>(s[1]), in.x.values(), in.w.values(), kEps);
    CheckClose("y", y.Host(), want.y, p.tolerance);
    CheckClose("rstd", rstd.Host(), want.rstd, StatisticsTolerance(p.dtype));
  });
}

/// What the CPU's forward passes leave for the backward, from fp64 rounded to what the dtype keeps.
struct Statistics {
  Array mean, rstd, rms_rstd;
  explicit Statistics(const Inputs& in) {
    const Inputs wide = in.To(DType::f64);
    const Shape rows{in.x.shape()[0]};
    const Array y(DType::f64, in.x.shape());
    mean = rstd = rms_rstd = Array(DType::f64, rows);
    LayerNormForward({2}, wide.x, wide.w, wide.b, kEps, y, mean, rstd);
    RmsNormForward({2}, wide.x, wide.w, kEps, y, rms_rstd);
    for (Array* a : {&mean, &rstd, &rms_rstd}) *a = a->To(StatisticsType(in.x.dtype()));
  }
};

/// What rounding does to the terms r * g and r * xhat * mean(g * xhat) of every element, with g = dy * weight and
/// xhat = x * r, whose difference RMSNorm's dx is. In rows of one element xhat is 1 but for eps, and the terms cancel
/// to some 1e-5 of themselves: their errors are then far more than a rounding of dx. g, xhat and g * xhat are rounded
/// once each, their mean and its product with xhat twice more: 6 roundings at most, in the type that is computed in.
Values RmsRoundings(const Inputs& in, const Values& rstd) {
  const size_t columns = static_cast<size_t>(in.x.shape()[1]);
  const double roundings = 6 * (in.x.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24);
  Values errors(in.x.size());
  for (size_t row = 0; row < rstd.size(); ++row) {
    const double r = rstd[row];
    double mean = 0;
    for (size_t i = row * columns; i < (row + 1) * columns; ++i)
      mean += std::fabs(in.dy[i] * in.w[i % columns] * in.x[i] * r) / static_cast<double>(columns);
    for (size_t i = row * columns; i < (row + 1) * columns; ++i)
      errors[i] = roundings * r * (std::fabs(in.dy[i] * in.w[i % columns]) + std::fabs(in.x[i] * r) * mean);
  }
  return errors;
}

TEST_CASE("GPU: gradients of the inputs of both norms are the CPU's in fp64, with a residual and without, in place") {
  ForEachCase([](const Shape& s, const Precision& p, int64_t offset) {
    const GpuContext context;
    const Inputs in(p.dtype, s), wide = in.To(DType::f64);
    const Statistics at(in);
    const Array mean64 = at.mean.To(DType::f64), rstd64 = at.rstd.To(DType::f64),
                rms_rstd64 = at.rms_rstd.To(DType::f64);
    const GpuArray dy(in.dy, offset), x(in.x, offset), w(in.w, offset), mean(at.mean), rstd(at.rstd),
        rms_rstd(at.rms_rstd);
    for (bool with_residual : {false, true}) {
      CAPTURE(with_residual);
      const GpuArray dx = with_residual ? GpuArray(in.residual, offset) : GpuArray(p.dtype, s, offset);
      const Array want = Array(DType::f64, s);
      const Tensor residual = with_residual ? dx.tensor() : Tensor(),
                   wide_residual = with_residual ? wide.residual.tensor() : Tensor();
      LayerNormBackwardInput({2}, wide.dy, wide.x, wide.w, mean64, rstd64, wide_residual, want);
      LayerNormBackwardInput(context, dy, x, w, mean, rstd, residual, dx);
      CheckClose("dx of LayerNorm", dx.Host(), want.values(), 2 * p.tolerance);

      const GpuArray dx_rms = with_residual ? GpuArray(in.residual, offset) : GpuArray(p.dtype, s, offset);
      RmsNormBackwardInput({2}, wide.dy, wide.x, wide.w, rms_rstd64, wide_residual, want);
      RmsNormBackwardInput(context, dy, x, w, rms_rstd, with_residual ? dx_rms.tensor() : Tensor(), dx_rms);
      CheckClose("dx of RMSNorm", dx_rms.Host(), want.values(), 2 * p.tolerance,
                 RmsRoundings(in, at.rms_rstd.values()));
    }
  });
}

void CheckWeightGradients(const Shape& s, const Precision& p, int64_t offset) {
  CAPTURE(s.str(), NameOf(p.dtype), offset);
  const DType sums = StatisticsType(p.dtype);
  const GpuContext context(ColumnSumsWorkspaceBytes(s[0], s[1], 2, p.dtype));
  const Inputs in(p.dtype, s);
  const Statistics at(in);
  const GpuArray dy(in.dy, offset), x(in.x, offset), mean(at.mean), rstd(at.rstd), rms_rstd(at.rms_rstd);
  for (bool accumulate : {false, true}) {
    CAPTURE(accumulate);
    Array dw(sums, {s[1]}), db(sums, {s[1]});
    if (accumulate) dw = Array::Random(sums, {s[1]}, 6), db = Array::Random(sums, {s[1]}, 7);
    const GpuArray got_dw(dw), got_db(db), got_rms(dw);
    Array rms = dw;
    LayerNormBackwardWeight({2}, in.dy, in.x, at.mean, at.rstd, dw, db, accumulate);
    LayerNormBackwardWeight(context, dy, x, mean, rstd, got_dw, got_db, accumulate);
    CHECK(got_dw.Host() == dw);
    CHECK(got_db.Host() == db);
    RmsNormBackwardWeight({2}, in.dy, in.x, at.rms_rstd, rms, accumulate);
    RmsNormBackwardWeight(context, dy, x, rms_rstd, got_rms, accumulate);
    CHECK(got_rms.Host() == rms);
  }
}

TEST_CASE("GPU: gradients of the weights of both norms have the CPU's bits") { ForEachCase(CheckWeightGradients); }

TEST_CASE("GPU: gradients of the norms' weights over many blocks of rows, and by many threads, have the CPU's bits") {
  for (const Precision& p : kPrecisions) {
    if (!LeftOut(24'700 * 40)) CheckWeightGradients({24'700, 40}, p, 0);  // 386 blocks
    // From 65,536 threads of 16 bytes on each takes so many, else 4 bytes.
    CheckWeightGradients({5, 65'537 * 16 / static_cast<int64_t>(SizeOf(p.dtype))}, p, 0);
  }
}

TEST_CASE("GPU: what the norms give does not depend on where the arrays lie") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (const Shape& s : {Shape{5, 768}, Shape{5, 1000}, Shape{3, 8192}}) {
      CAPTURE(s.str(), NameOf(p.dtype));
      const Inputs in(p.dtype, s);
      const auto run = [&](int64_t offset) {
        const GpuArray x(in.x, offset), w(in.w, offset), b(in.b, offset), dy(in.dy, offset);
        const GpuArray y(p.dtype, s, offset), mean(StatisticsType(p.dtype), {s[0]}), rstd(mean.dtype(), {s[0]});
        const GpuArray rms_y(p.dtype, s, offset), rms_rstd(mean.dtype(), {s[0]}), dx(p.dtype, s, offset);
        const GpuArray rms_dx(p.dtype, s, offset);
        LayerNormForward(context, x, w, b, kEps, y, mean, rstd);
        LayerNormBackwardInput(context, dy, x, w, mean, rstd, {}, dx);
        RmsNormForward(context, x, w, kEps, rms_y, rms_rstd);
        RmsNormBackwardInput(context, dy, x, w, rms_rstd, {}, rms_dx);
        return std::vector<Array>{y.Host(),        mean.Host(),   rstd.Host(), rms_y.Host(),
                                  rms_rstd.Host(), rms_dx.Host(), dx.Host()};
      };
      CHECK(run(0) == run(1));
    }
}

}  // namespace
}  // namespace ds::test
