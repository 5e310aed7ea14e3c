// Every hand-written backward against central differences of the forward pass, in fp64.
#include <algorithm>
#include <cmath>

#include "test/catch.h"
#include "test/unit/segments/harness.h"

namespace ds::test {
namespace {

/// d(objective) / d(element i of b), with an error of about 1e-10 (step^2 times a third derivative).
double CentralDifference(Harness& h, Buffer& b, int64_t i) {
  constexpr double kStep = 1e-5;
  double value = b.Get(i);
  b.Set(i, value + kStep);
  double above = h.Objective();
  b.Set(i, value - kStep);
  double below = h.Objective();
  b.Set(i, value);
  return (above - below) / (2 * kStep);
}

/// Largest difference between `gradient` and central differences in `b`, over 1 + the largest element.
double GradientError(Harness& h, Buffer& b, const std::vector<double>& gradient) {
  double error = 0, size = 1;
  for (size_t i = 0; i < gradient.size(); ++i) {
    double difference = std::abs(CentralDifference(h, b, static_cast<int64_t>(i)) - gradient[i]);
    if (!(difference <= error)) error = difference;  // NaN counts
    size = std::max(size, std::abs(gradient[i]));
  }
  return error / size;
}

void CheckGradients(Harness h) {
  constexpr double kBound = 1e-8;
  h.All();
  REQUIRE(h.GuardsIntact());
  std::vector<double> dx = h.dx.Values();
  std::vector<std::vector<double>> grads;
  for (const Buffer& g : h.grads) grads.push_back(g.Values());

  if (h.spec.kind != SegmentKind::embedding) {
    double error = GradientError(h, h.x, dx);
    CHECK(error < kBound);
    CHECK(*std::max_element(dx.begin(), dx.end()) > 1e-3);  // there is something to get wrong
  }
  for (size_t p = 0; p < h.params.size(); ++p) {
    CAPTURE(h.param_names[p]);
    double error = GradientError(h, h.params[p], grads[p]);
    CHECK(error < kBound);
  }
}

}  // namespace

TEST_CASE("backward passes agree with central differences", "[gradients]") {
  for (const std::string& name : SmallModelNames()) {
    for (double dropout : {0.0, 0.25}) {
      for (SegmentKind kind : {SegmentKind::embedding, SegmentKind::attention, SegmentKind::mlp, SegmentKind::head}) {
        CAPTURE(name, dropout, static_cast<int>(kind));
        CheckGradients(Harness(SmallModel(name, dropout), kind));
        if (kind == SegmentKind::mlp)  // SwiGLU's output computed again
          CheckGradients(
              Harness(SmallModel(name, dropout), kind, DType::f64, {2, 5}, false, RecomputeMode::activation));
      }
    }
  }
}

TEST_CASE("so do those of attention within documents, which recomputes to the same bits", "[gradients]") {
  for (const std::string& name : SmallModelNames()) {
    for (double dropout : {0.0, 0.25}) {
      CAPTURE(name, dropout);
      CheckGradients(Harness(SmallModel(name, dropout), SegmentKind::attention, DType::f64, {2, 5}, true));
      Harness h(SmallModel(name, dropout), SegmentKind::attention, DType::f32, {2, 5}, true);
      h.Poison();
      h.Forward();
      std::vector<std::vector<unsigned char>> saved;
      for (Buffer& b : h.saved) saved.push_back(b.Bytes()), b.Poison();
      h.Recompute();
      for (size_t i = 0; i < saved.size(); ++i) CHECK(h.saved[i].Bytes() == saved[i]);
    }
  }
}

TEST_CASE("central differences notice a gradient that is off", "[gradients]") {
  Harness h(SmallModel("gpt2"), SegmentKind::mlp);
  h.All();
  std::vector<double> dx = h.dx.Values();
  dx[3] *= 1.0001;
  CHECK(GradientError(h, h.x, dx) > 1e-6);
}

}  // namespace ds::test
