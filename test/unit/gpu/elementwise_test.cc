// Elementwise kernels on the GPU: the bits of the CPU's.
#include "kernels/elementwise.h"

#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"

namespace ds::test {
namespace {

const int64_t kSizes[] = {0, 1, 7, 8, 255, 2048, 2049, 100'003};
const int64_t kOffsets[] = {0, 3};  ///< elements before the array: with 3, no 16-byte accesses

/// Numbers of every size that the dtypes know, infinities, NaN, both zeros and denormals among them.
Array Special(DType dtype, int64_t n, uint32_t seed) {
  Array x = Array::Random(dtype, {n}, seed, 1);
  const double specials[] = {0.0,   -0.0,    HUGE_VAL,   -HUGE_VAL, 65504,   65519.9,    65520,      1e-8, -6e-8,
                             1e-40, 3.39e38, -3.4028e38, 1e300,     -1e-310, 1.00390625, 1.01171875, NAN,  -NAN};
  for (size_t i = 0; i < x.size(); ++i) {
    if (i % 3 == 0) x.Set(i, specials[i / 3 % std::size(specials)]);
    if (i % 3 == 1) x.Set(i, x[i] * std::exp2(static_cast<double>(i % 61) - 30));
  }
  return x;
}

TEST_CASE("GPU: casts give the CPU's bits between all dtypes, those of NaN included but for fp64") {
  const GpuContext context;
  for (const Precision& from : kPrecisions)
    for (const Precision& to : kPrecisions)
      for (int64_t n : kSizes)
        for (int64_t offset : kOffsets) {
          if (LeftOut(n)) continue;
          CAPTURE(NameOf(from.dtype), NameOf(to.dtype), n, offset);
          const Array x = Special(from.dtype, n, 1);
          Array want(to.dtype, {n});
          Cast({}, x, want);
          const GpuArray got(to.dtype, {n}, offset);
          Cast(context, GpuArray(x, offset), got);
          if ((from.dtype == DType::f64) != (to.dtype == DType::f64))  // the hardware has one NaN between these
            CheckSame(got.Host(), want);
          else
            CHECK(got.Host() == want);
        }
}

TEST_CASE("GPU: fill, add and scale give the CPU's bits") {
  const GpuContext context;
  for (const Precision& p : kPrecisions)
    for (int64_t n : kSizes)
      for (int64_t offset : kOffsets) {
        if (LeftOut(n)) continue;
        CAPTURE(NameOf(p.dtype), n, offset);
        const Array a = Special(p.dtype, n, 1), b = Special(p.dtype, n, 2);
        Array want(p.dtype, {n});
        for (double value : {0.1, 0.0, -0.0}) {
          Fill({}, want, value);
          const GpuArray filled(p.dtype, {n}, offset);
          Fill(context, filled, value);
          CHECK(filled.Host() == want);
        }

        Add({}, a, b, want);
        const GpuArray sum(p.dtype, {n}, offset), left(a, offset);
        Add(context, left, GpuArray(b, offset), sum);
        CheckSame(sum.Host(), want);
        Add(context, left, GpuArray(b, offset), left);  // in place
        CheckSame(left.Host(), want);

        if (StatisticsType(p.dtype) != p.dtype) continue;
        want = a;
        Scale({}, want, 1.0 / 3);
        const GpuArray scaled(a, offset);
        Scale(context, scaled, 1.0 / 3);
        CheckSame(scaled.Host(), want);
      }
}

void CheckBiasBackward(const Precision& p, const Shape& s, int64_t offset) {
  CAPTURE(NameOf(p.dtype), s.str(), offset);
  const GpuContext context(ColumnSumsWorkspaceBytes(s[0], s[1], 1, p.dtype));
  const Array dy = Array::Random(p.dtype, s, 1), before = Array::Random(StatisticsType(p.dtype), {s[1]}, 2);
  Array want(before.dtype(), {s[1]}), added = before;
  BiasBackward({}, dy, want, false);
  BiasBackward({}, dy, added, true);
  const GpuArray d(dy, offset), got(before.dtype(), {s[1]}, offset), onto(before, offset);
  BiasBackward(context, d, got, false);
  CHECK(got.Host() == want);
  BiasBackward(context, d, onto, true);
  CHECK(onto.Host() == added);
}

TEST_CASE("GPU: bias gradients give the CPU's bits, added or not") {
  for (const Precision& p : kPrecisions)
    for (const Shape& s : {Shape{1, 1}, Shape{3, 7}, Shape{64, 768}, Shape{65, 1000}, Shape{1029, 1}, Shape{1029, 768},
                           Shape{300, 4096}, Shape{0, 5}})
      for (int64_t offset : kOffsets)
        if (!LeftOut(s.numel())) CheckBiasBackward(p, s, offset);
}

TEST_CASE("GPU: bias gradients over many blocks of rows, and by many threads, have the CPU's bits") {
  for (const Precision& p : kPrecisions) {
    for (int64_t columns : {33, 34, 40})  // 386 blocks: more than are on their way at a time
      if (!LeftOut(24'700 * columns)) CheckBiasBackward(p, {24'700, columns}, 0);
    // From 65,536 threads of 16 bytes on each takes so many, else 4 bytes; in one block of rows and in two.
    const int64_t pack = 16 / static_cast<int64_t>(SizeOf(p.dtype));
    CheckBiasBackward(p, {9, 65'537 * pack}, 0);
    if (!LeftOut(73 * 32'769 * pack)) CheckBiasBackward(p, {73, 32'769 * pack}, 0);
  }
}

TEST_CASE("GPU: kernels refuse tensors of two devices, and too small a workspace") {
  const GpuArray x(DType::f32, {200, 4}), sums(DType::f32, {4});
  const Array on_cpu(DType::f32, {200, 4});
  CHECK_THROWS_AS(Add({}, x, on_cpu, x), std::invalid_argument);
  CHECK_THROWS_AS(BiasBackward(GpuContext(), x, sums, false), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
