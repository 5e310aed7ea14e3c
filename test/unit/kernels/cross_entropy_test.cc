// Cross entropy and its gradient: padding columns, ignored targets, every gradient dtype.
#include "kernels/cross_entropy.h"

#include "kernels/reduce.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  int64_t rows, vocabulary, padded;
};
const Case kCases[] = {{1, 1, 1}, {1, 2, 5}, {7, 17, 17}, {13, 257, 320}, {3, 1031, 1088}};

size_t Z(int64_t n) { return static_cast<size_t>(n); }

struct Inputs {
  Array logits;
  std::vector<int32_t> targets;
  Inputs(DType dtype, const Case& c) : logits(Array::Random(dtype, {c.rows, c.padded}, 1, 3)), targets(Z(c.rows)) {
    std::mt19937 generator(2);
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i] = static_cast<int32_t>(generator() % static_cast<uint32_t>(c.vocabulary));
      if (i % 4 == 3) targets[i] = -100;  // ignored
      // Padding may hold anything.
      for (int64_t j = c.vocabulary; j < c.padded; ++j) logits.Set(i * Z(c.padded) + Z(j), j % 2 ? NAN : 1e30);
    }
  }
};

/// {losses, dlogits}
std::vector<Array> Run(const Inputs& in, const Case& c, double scale, DType gradient) {
  const Array targets = Array::OfInts({c.rows}, in.targets);
  return OnAnyThreads([&](const KernelContext& context) {
    Array losses(StatisticsType(in.logits.dtype()), {c.rows}), dlogits(gradient, in.logits.shape());
    CrossEntropy(context, in.logits, targets, c.vocabulary, scale, losses, dlogits);
    Array alone(losses.dtype(), {c.rows});
    CrossEntropy(context, in.logits, targets, c.vocabulary, scale, alone, {});
    CHECK(alone == losses);
    return std::vector<Array>{losses, dlogits};
  });
}

TEST_CASE("cross entropy agrees with the formula") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {  // 16-bit logits are exact in the fp32 that they are computed in
      CAPTURE(c.rows, c.vocabulary, NameOf(p.dtype));
      const Inputs in(p.dtype, c);
      CheckClose("losses", Run(in, c, 1, p.dtype)[0],
                 reference::CrossEntropy(Z(c.padded), Z(c.vocabulary), in.logits.values(), in.targets),
                 p.dtype == DType::f64 ? 1e-13 : 1e-6);
    }
}

TEST_CASE("the gradient of cross entropy agrees with central differences in f64 and with f64 in the others") {
  const double scale = 0.37;
  for (const Case& c : kCases) {
    const Inputs in(DType::f64, c);
    const Array exact = Run(in, c, scale, DType::f64)[1];
    if (c.rows * c.padded < 1000) {
      Values numeric = CentralDifferences(in.logits.values(), [&](const Values& v) {
        double sum = 0;
        for (double loss : reference::CrossEntropy(Z(c.padded), Z(c.vocabulary), v, in.targets)) sum += scale * loss;
        return sum;
      });
      CheckClose("dlogits", exact, numeric, kDifferenceTolerance);
    }
    for (const Precision& p : kPrecisions) {
      if (p.dtype == DType::f64) continue;
      CAPTURE(c.rows, c.vocabulary, NameOf(p.dtype));
      const Inputs narrow(DType::f32, c);
      Inputs wide = narrow;
      wide.logits = narrow.logits.To(DType::f64);
      const Array got = Run(narrow, c, scale, p.dtype)[1];
      CheckClose("dlogits", got, Run(wide, c, scale, DType::f64)[1].values(), p.tolerance);
      size_t not_zero = 0;
      for (size_t i = 0; i < got.size(); ++i)
        not_zero += (i % Z(c.padded) >= Z(c.vocabulary) || in.targets[i / Z(c.padded)] < 0) && got[i] != 0;
      CHECK(not_zero == 0);
    }
  }
}

TEST_CASE("16-bit logits have the gradient that their fp32 copy has") {
  for (const Case& c : kCases)
    for (DType dtype : {DType::bf16, DType::f16}) {
      CAPTURE(c.rows, c.vocabulary, NameOf(dtype));
      const Inputs narrow(dtype, c);
      Inputs wide = narrow;
      wide.logits = narrow.logits.To(DType::f32);
      CHECK(Run(narrow, c, 0.37, dtype) == Run(wide, c, 0.37, dtype));
    }
}

TEST_CASE("the gradient may replace the logits") {
  const Case c{5, 600, 640};
  for (const Precision& p : kPrecisions) {
    CAPTURE(NameOf(p.dtype));
    const Inputs in(p.dtype, c);
    const auto apart = Run(in, c, 2, p.dtype);
    Array together = in.logits, losses(StatisticsType(p.dtype), {c.rows});
    CrossEntropy({}, together, Array::OfInts({c.rows}, in.targets), c.vocabulary, 2, losses, together);
    CHECK(together == apart[1]);
    CHECK(losses == apart[0]);
  }
}

TEST_CASE("gradients that cannot be are refused") {
  const Array targets = Array::OfInts({2}, {0, 1}), narrow = Array::Random(DType::bf16, {2, 8}, 1);
  Array losses(DType::f32, {2}), wide(DType::f32, {2, 8});
  CHECK_THROWS_AS(CrossEntropy({}, narrow, targets, 8, 1, losses, wide), std::invalid_argument);
  const Tensor half(wide.data(), DType::bf16, {2, 8});  // in the logits' memory, but not their dtype
  CHECK_THROWS_AS(CrossEntropy({}, wide, targets, 8, 1, losses, half), std::invalid_argument);
}

TEST_CASE("large logits neither overflow nor lose the loss, and NaN is not hidden") {
  Array logits = Array::Of(DType::f32, {2, 3}, {3e4, -3e4, 2.9e4, 0, std::nan(""), 1}), losses(DType::f32, {2});
  CrossEntropy({}, logits, Array::OfInts({2}, {1, 0}), 3, 1, losses, {});
  CHECK(losses[0] == 6e4);
  CHECK(std::isnan(losses[1]));
}

TEST_CASE("a target outside the vocabulary is an error that names it and its row") {
  Array logits = Array::Random(DType::f32, {2, 8}, 1), losses(DType::f32, {2});
  std::string message;
  try {
    CrossEntropy({}, logits, Array::OfInts({2}, {0, 5}), 5, 1, losses, {});
  } catch (const std::invalid_argument& e) {
    message = e.what();
  }
  CAPTURE(message);
  CHECK(message.find("target 5 of row 1") != std::string::npos);
  CHECK_THROWS_AS(CrossEntropy({}, logits, Array::OfInts({2}, {0, 1}), 9, 1, losses, {}), std::invalid_argument);
  CHECK_THROWS_AS(CrossEntropy({}, logits, Array::OfInts({3}, {0, 1, 2}), 5, 1, losses, {}), std::invalid_argument);
}

TEST_CASE("losses are summed in fp64, in token order") {
  const Array x = Array::Random(DType::f32, {1000}, 1, 5, 10);
  double want = 0;
  for (size_t i = 0; i < x.size(); ++i) want += x[i];
  for (DType dtype : {DType::f32, DType::f64}) {
    Array sum(DType::f64, {1});
    SumInto({}, x.To(dtype), sum);
    CHECK(sum[0] == want);
    CHECK(sum.Intact());
  }
  Array sum(DType::f64, {1}), narrow(DType::f32, {1}), half(DType::bf16, {4});
  SumInto({}, Array(DType::f32, {0}), sum);
  CHECK(sum[0] == 0);
  CHECK_THROWS_AS(SumInto({}, x, narrow), std::invalid_argument);
  CHECK_THROWS_AS(SumInto({}, half, sum), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
