// Cross entropy on the GPU against fp64 and the CPU.
#include "kernels/cross_entropy.h"

#include "kernels/reduce.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/reference.h"

namespace ds::test {
namespace {

struct Case {
  int64_t rows, vocabulary, padded;
};
const Case kSmall[] = {{1, 1, 1}, {9, 1, 8}, {1, 7, 7}, {13, 7, 64}, {7, 1031, 1031}, {5, 1031, 1088}, {3, 257, 259}};
const Case kLarge[] = {{9, 50257, 50304}, {5, 50257, 50257}, {4, 32000, 32000}, {3, 151936, 151936}};

size_t Z(int64_t n) { return static_cast<size_t>(n); }

struct Inputs {
  Array logits;
  std::vector<int32_t> targets;
  Inputs(DType dtype, const Case& c) : logits(Array::Random(dtype, {c.rows, c.padded}, 1, 3)), targets(Z(c.rows)) {
    std::mt19937 generator(2);
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<int32_t>(generator() % static_cast<uint32_t>(c.vocabulary));
      if (i == 1) targets[i] = static_cast<int32_t>(c.vocabulary - 1);
      if (i % 4 == 3) targets[i] = -100;  // ignored
      // Padding may hold anything.
      for (int64_t j = c.vocabulary; j < c.padded; ++j) logits.Set(i * Z(c.padded) + Z(j), j % 2 ? NAN : 6e4);
    }
  }
  Array Targets() const { return Array::OfInts({static_cast<int64_t>(targets.size())}, targets); }
};

struct Result {
  Array losses, dlogits;
  bool operator==(const Result&) const = default;
};

Result Run(const KernelContext& context, const Array& logits, const Array& targets, int64_t vocabulary, double scale,
           DType gradient, int64_t offset = 0) {
  const GpuArray in(logits, offset), on_gpu(targets, offset);
  const GpuArray losses(StatisticsType(logits.dtype()), targets.shape(), offset), d(gradient, logits.shape(), offset);
  CrossEntropy(context, in, on_gpu, vocabulary, scale, losses, d);
  CHECK(in.Host() == logits);
  const GpuArray alone(losses.dtype(), targets.shape(), offset);
  CrossEntropy(context, in, on_gpu, vocabulary, scale, alone, {});
  CHECK(alone.Host() == losses.Host());
  return {losses.Host(), d.Host()};
}

/// Against fp64 in the losses, and against the CPU's fp64 (which has its own tests) in the gradient.
void Compare(const KernelContext& context, const Case& c) {
  const double scale = 0.37;
  for (const Precision& p : kPrecisions)
    for (const Precision& gradient : kPrecisions) {
      if (SizeOf(p.dtype) == 2 && gradient.dtype != p.dtype) continue;
      CAPTURE(c.rows, c.vocabulary, c.padded, NameOf(p.dtype), NameOf(gradient.dtype));
      const Inputs in(p.dtype, c);
      const Result got = Run(context, in.logits, in.Targets(), c.vocabulary, scale, gradient.dtype);
      CHECK(Run(context, in.logits, in.Targets(), c.vocabulary, scale, gradient.dtype, 1) == got);  // other addresses
      const Values exact_losses = reference::CrossEntropy(Z(c.padded), Z(c.vocabulary), in.logits.values(), in.targets);
      size_t losses_wrong = 0;  // the sum is at least 1, and its rounding is not scaled down with a small logarithm
      for (size_t row = 0; row < exact_losses.size(); ++row) {
        const double bound = (p.dtype == DType::f64 ? 1e-13 : 1e-6) * (1 + exact_losses[row]);
        losses_wrong += !(std::fabs(got.losses[row] - exact_losses[row]) <= bound);
      }
      CHECK(losses_wrong == 0);

      Array losses(DType::f64, {c.rows}), exact(DType::f64, in.logits.shape());
      CrossEntropy({}, in.logits.To(DType::f64), in.Targets(), c.vocabulary, scale, losses, exact);
      // e^x is off by the rounding of x - largest too.
      const double tolerance = std::max(gradient.tolerance, p.dtype == DType::f64 ? 0 : 4e-6);
      Values want = exact.values();
      double mean = 0;
      for (double w : want) mean += std::fabs(w) / static_cast<double>(want.size());
      size_t wrong = 0, not_zero = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        const size_t row = i / Z(c.padded), column = i % Z(c.padded);
        // f16 loses the smallest gradients; at the target, p - 1 cancels to a multiple of the rounding of 1.
        const bool at_target = static_cast<int64_t>(column) == in.targets[row];
        const double bound = tolerance * (std::fabs(want[i]) + (at_target ? scale : 1e-3 * mean)) +
                             (gradient.dtype == DType::f16 ? 0x1p-24 : 0);
        wrong += !(std::fabs(got.dlogits[i] - want[i]) <= bound);
        not_zero += (column >= Z(c.vocabulary) || in.targets[row] < 0) && got.dlogits[i] != 0;
      }
      CHECK(wrong == 0);
      CHECK(not_zero == 0);

      if (gradient.dtype != p.dtype) continue;
      const GpuArray together(in.logits), in_place(got.losses.dtype(), {c.rows});
      CrossEntropy(context, together, GpuArray(in.Targets()), c.vocabulary, scale, in_place, together);
      CHECK(Result{in_place.Host(), together.Host()} == got);
    }
}

TEST_CASE("GPU: cross entropy and its gradient agree with fp64, apart and in the logits' place", "[own]") {
  const GpuContext context;
  for (const Case& c : kSmall) Compare(context, c);
  Compare(context, {1, 16'400, 16'400});  // as many threads a row as there are
}

TEST_CASE("GPU: cross entropy of large vocabularies too", "[slow]") {
  const GpuContext context;
  for (const Case& c : kLarge) Compare(context, c);
}

TEST_CASE("GPU: large and infinite logits neither overflow nor lose the loss, and NaN is not hidden", "[own]") {
  const GpuContext context;
  const double inf = HUGE_VAL;
  for (int64_t columns : {4, 700}) {  // one thread meets the row, or many
    Array logits(DType::f32, {6, columns});
    for (int64_t row = 0; row < 6; ++row)
      for (int64_t j = 0; j < columns; ++j) logits.Set(Z(row * columns + j), row == 4 ? -inf : row == 1 ? -inf : -3e4);
    const auto at = [&](int64_t row, int64_t column) { return Z(row * columns + column); };
    logits.Set(at(0, 0), 3e4), logits.Set(at(0, 2), 2.9e4);
    logits.Set(at(1, columns - 1), 5), logits.Set(at(1, 0), 5);  // all others masked
    logits.Set(at(2, columns - 1), NAN);
    logits.Set(at(3, columns - 1), inf);
    logits.Set(at(5, 0), 88), logits.Set(at(5, 1), 88);
    const Array targets = Array::OfInts({6}, {1, 0, 0, 0, 0, 1});
    const Result got = Run(context, logits, targets, columns, 1, DType::f32);
    CHECK(got.losses[0] == 6e4);
    CHECK(std::fabs(got.losses[1] - std::log(2)) < 1e-7);
    for (size_t row : {2, 3, 4}) CHECK(std::isnan(got.losses[row]));
    CHECK(std::fabs(got.losses[5] - std::log(2)) < 1e-7);
    CHECK(got.dlogits[at(0, 0)] == 1);
    CHECK(got.dlogits[at(0, 1)] == -1);
    CHECK(got.dlogits[at(1, 1)] == 0);
    CHECK(got.dlogits[at(1, columns - 1)] == 0.5);
    CHECK(std::isnan(got.dlogits[at(2, 1)]));
  }
}

TEST_CASE("GPU: a target outside the vocabulary makes its row NaN and no other", "[own]") {
  const GpuContext context;
  const Array logits = Array::Random(DType::f32, {3, 8}, 1);
  const Result got = Run(context, logits, Array::OfInts({3}, {1, 5, 4}), 5, 1, DType::f32);
  CHECK(std::isnan(got.losses[1]));
  CHECK((std::isfinite(got.losses[0]) && std::isfinite(got.losses[2])));
  for (size_t j = 0; j < 8; ++j) {
    CHECK(std::isfinite(got.dlogits[j]));
    CHECK((j < 5 ? std::isnan(got.dlogits[8 + j]) : got.dlogits[8 + j] == 0));
  }
}

TEST_CASE("GPU: losses are summed in fp64 in one order", "[own]") {
  const GpuContext context;
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {0, 1, 7, 1023, 1024, 1025, 9000, 100'001}) {
      CAPTURE(NameOf(dtype), n);
      const Array x = Array::Random(dtype, {n}, 1, 5, 10);
      Values parts(1024);
      for (int64_t i = 0; i < n; ++i) parts[Z(i % 1024)] += x[Z(i)];
      for (size_t half = 512; half > 0; half /= 2)
        for (size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
      const GpuArray sum(DType::f64, {1});
      SumInto(context, GpuArray(x, 1), sum);
      CHECK(sum.Host()[0] == parts[0]);
    }
  const GpuArray sum(DType::f64, {1});
  SumInto(context, GpuArray(Array::Of(DType::f32, {3}, {1, NAN, 2})), sum);
  CHECK(std::isnan(sum.Host()[0]));
}

}  // namespace
}  // namespace ds::test
