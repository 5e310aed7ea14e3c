// The head in blocks of rows: values, ignored targets, padding, tying, and logits for generation.
#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/segments/harness.h"

namespace ds::test {
namespace {

/// Rows of more than one block, the last one partial.
constexpr MicroBatchShape kShape{3, 100};
static_assert(kShape.samples * kShape.tokens > kHeadRows);

std::vector<Tensor> Params(const Harness& h) {
  std::vector<Tensor> params;
  for (const Buffer& p : h.params) params.push_back(p.tensor());
  return params;
}

Buffer AllLogits(const Harness& h, int64_t first, int64_t rows) {
  DType wide = h.options.compute == DType::f64 ? DType::f64 : DType::f32;
  Buffer logits(wide, {rows, h.model.vocabulary});
  Tensor x = h.x.tensor().View({h.x.tensor().numel() / h.model.hidden, h.model.hidden});
  HeadLogits(h.options, h.spec, h.step, Params(h), x, first, rows, logits.tensor());
  REQUIRE(logits.GuardsIntact());
  return logits;
}

ModelConfig HeadModel(bool tied) {
  ModelConfig m = SmallModel("gpt2");
  m.max_positions = 100, m.vocabulary = 70, m.tied_head = tied;  // padded to 128
  return m;
}

}  // namespace

TEST_CASE("loss and dlogits follow from the logits", "[head]") {
  for (bool tied : {false, true}) {
    Harness h(HeadModel(tied), SegmentKind::head, DType::f64, kShape);
    h.All();
    const int64_t rows = kShape.samples * kShape.tokens, vocabulary = 70, padded = 128;
    Buffer logits = AllLogits(h, 0, rows);
    const Buffer& dlogits = h.saved.back();
    const double scale = h.step.loss_scale / static_cast<double>(h.step.global_tokens);
    double loss = 0, error = 0;
    bool padding_is_zero = true;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t target = static_cast<int64_t>(h.targets.Get(r));
      double sum = 0;
      for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(logits.Get(r * vocabulary + v));
      if (target >= 0) loss += std::log(sum) - logits.Get(r * vocabulary + target);
      for (int64_t v = 0; v < padded; ++v) {
        double d = dlogits.Get(r * padded + v);
        if (v >= vocabulary) {
          padding_is_zero &= d == 0;
          continue;
        }
        double softmax = std::exp(logits.Get(r * vocabulary + v)) / sum;
        double expected = target < 0 ? 0 : scale * (softmax - (v == target ? 1 : 0));
        error = std::max(error, std::abs(d - expected));
      }
    }
    CHECK(h.loss_sum == Approx(loss).epsilon(1e-12));
    CHECK(error < 1e-13);
    CHECK(padding_is_zero);
  }
}

TEST_CASE("gradients of the vocabulary's padding are exactly zero", "[head]") {
  for (DType compute : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (SegmentKind kind : {SegmentKind::embedding, SegmentKind::head}) {
      CAPTURE(NameOf(compute), static_cast<int>(kind));
      Harness h(HeadModel(true), kind, compute, kShape);
      h.All();
      const Buffer& table = kind == SegmentKind::embedding ? h.grads.front() : h.grads.back();
      REQUIRE(table.tensor().shape == Shape{128, 16});
      bool padding_is_zero = true, rest_is_zero = true;
      for (int64_t i = 0; i < 70 * 16; ++i) rest_is_zero &= table.Get(i) == 0;
      for (int64_t i = 70 * 16; i < 128 * 16; ++i) padding_is_zero &= table.Get(i) == 0;
      CHECK(padding_is_zero);
      CHECK_FALSE(rest_is_zero);
    }
  }
}

TEST_CASE("logits of some rows are those of all rows", "[head]") {
  Harness h(HeadModel(true), SegmentKind::head, DType::f64, kShape);
  Buffer all = AllLogits(h, 0, 300), some = AllLogits(h, 250, 50), last = AllLogits(h, 299, 1);
  double error = 0;
  for (int64_t i = 0; i < 50 * 70; ++i) error = std::max(error, std::abs(some.Get(i) - all.Get(250 * 70 + i)));
  for (int64_t i = 0; i < 70; ++i) error = std::max(error, std::abs(last.Get(i) - all.Get(299 * 70 + i)));
  CHECK(error < 1e-13);
  CHECK_THROWS_AS(AllLogits(h, 251, 50), RuntimeError);
}

}  // namespace ds::test
