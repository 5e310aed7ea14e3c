// The same segment in f32, bf16 and f16 against f64, from inputs that every one of them represents exactly.
#include <algorithm>
#include <cmath>

#include "test/catch.h"
#include "test/unit/segments/harness.h"

namespace ds::test {
namespace {

/// Largest difference over the largest element of `expected`.
double RelativeError(const Buffer& actual, const Buffer& expected) {
  double error = 0, size = 1e-30;
  for (int64_t i = 0; i < expected.tensor().numel(); ++i) {
    double difference = std::abs(actual.Get(i) - expected.Get(i));
    if (!(difference <= error)) error = difference;  // NaN counts
    size = std::max(size, std::abs(expected.Get(i)));
  }
  return error / size;
}

struct Bound {
  DType compute;
  double relative;  ///< of the largest element of a tensor: some roundings of the dtype (2^-24, 2^-9, 2^-12)
};

}  // namespace

TEST_CASE("f32, bf16 and f16 stay within some roundings of f64", "[precision]") {
  // Measured when written: 4e-7, 9e-3 and 1.4e-3.
  for (Bound bound : {Bound{DType::f32, 2e-6}, Bound{DType::bf16, 2e-2}, Bound{DType::f16, 3e-3}}) {
    for (const std::string& name : SmallModelNames()) {
      for (SegmentKind kind : {SegmentKind::embedding, SegmentKind::attention, SegmentKind::mlp, SegmentKind::head}) {
        // Weights of 0.5 at this width make activations of the size of 1 to 10, as in a trained model.
        ModelConfig model = SmallModel(name, 0.1);
        Harness exact(model, kind, DType::f64, {3, 6}, DType::bf16), h(model, kind, bound.compute, {3, 6}, DType::bf16);
        exact.All();
        h.All();
        auto expected = exact.Outputs(), actual = h.Outputs();
        for (size_t i = 0; i < expected.size(); ++i) {
          double error = RelativeError(*actual[i].second, *expected[i].second);
          CAPTURE(name, h.spec.name, NameOf(bound.compute), actual[i].first);
          CHECK(error < bound.relative);
        }
        if (kind == SegmentKind::head) CHECK(h.loss_sum == Approx(exact.loss_sum).epsilon(bound.relative));
      }
    }
  }
}

}  // namespace ds::test
