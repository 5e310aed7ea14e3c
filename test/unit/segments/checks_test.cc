// A pass that is given the wrong tensors says which, and of which segment.
#include <functional>

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/segments/harness.h"

namespace ds::test {
namespace {

/// The message of the RuntimeError that `body` throws; empty when it throws none.
std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const RuntimeError& error) {
    return error.what();
  }
  return "";
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("wrong tensors are refused by name", "[checks]") {
  Harness h(SmallModel("gpt2", 0.1), SegmentKind::attention, DType::f32);
  SECTION("a parameter of another dtype") {
    h.params[2] = Buffer(DType::f64, h.params[2].tensor().shape);
    std::string error = ErrorOf([&] { h.Forward(); });
    INFO(error);
    CHECK(Contains(error,
                   "layer1.attention: Forward: parameter 'layers.1.attention.qkv.weight' is f64 [48, 16], "
                   "expected f32 [48, 16]"));
  }
  SECTION("a saved tensor of another shape") {
    h.saved[3] = Buffer(DType::f32, {10, 16});
    CHECK(Contains(ErrorOf([&] { h.BackwardInput(); }), "BackwardInput: saved 'qkv' is f32 [10, 16], expected"));
  }
  SECTION("a carried tensor is missing") {
    h.carried.pop_back();
    CHECK(Contains(ErrorOf([&] { h.BackwardWeight(); }), "BackwardWeight: 2 carried tensors, expected 3"));
  }
  SECTION("x is absent") {
    h.x = Buffer(DType::f32, {2, 5, 8});
    CHECK(Contains(ErrorOf([&] { h.Recompute(); }), "Recompute: x is f32 [2, 5, 8], expected f32 [2, 5, 16]"));
  }
  SECTION("too little scratch") {
    h.spec.forward_scratch -= 64;
    std::string error = ErrorOf([&] { h.Forward(); });
    INFO(error);
    CHECK(Contains(error, "layer1.attention: the scratch holds 576 bytes, the pass needs at least 640"));
  }
}

TEST_CASE("attention within documents needs to know where they begin", "[checks]") {
  Harness h(SmallModel("llama"), SegmentKind::attention, DType::f32, {2, 5}, true);
  h.All();
  h.first_key = Buffer(DType::i32, {2, 4});
  const std::string wrong = ": first_key is i32 [2, 4], expected i32 [2, 5]";
  CHECK(Contains(ErrorOf([&] { h.Forward(); }), "layer1.attention: Forward" + wrong));
  CHECK(Contains(ErrorOf([&] { h.Recompute(); }), "layer1.attention: Recompute" + wrong));
  CHECK(Contains(ErrorOf([&] { h.BackwardInput(); }), "layer1.attention: BackwardInput" + wrong));
  h.spec.reset_attention = false;  // the harness then gives none
  CHECK(Contains(ErrorOf([&] { h.Forward(); }), "Forward: first_key is absent, expected i32 [2, 5]"));
}

TEST_CASE("the head needs a place for the loss, and the tokens of the global batch", "[checks]") {
  Harness h(SmallModel("llama"), SegmentKind::head);
  SegmentIo io;
  CHECK(Contains(ErrorOf([&] { h.segment->Forward(h.step, io); }), "head: Forward: loss_sum is absent"));
  h.step.global_tokens = 0;
  CHECK(Contains(ErrorOf([&] { h.Forward(); }), "global_tokens is 0"));
}

TEST_CASE("more tokens than learned positions are refused", "[checks]") {
  CHECK(Contains(ErrorOf([] {
                   Harness(SmallModel("gpt2"), SegmentKind::embedding, DType::f32, {1, 8});
                 }),
                 "8 tokens a sample, but the model has 7 positions"));
}

}  // namespace ds::test
