// What a step decides, against its documentation.
#include "kernels/step_decision.h"

#include "test/unit/kernels/step_decision_inputs.h"

namespace ds::test {
namespace {

TEST_CASE("a step is taken where loss and squares are finite, and clips to the norm that is asked for") {
  for (const DecisionCase& c : DecisionCases()) {
    CAPTURE(c.name);
    const int64_t width = c.rule.units + kStepFacts;
    const Array facts = Array::Of(DType::f64, {c.rule.ranks, width}, c.facts);
    Array scale(DType::f32, {1}), skip(DType::i32, {1});
    DecideStep({}, c.rule, facts, scale, skip);
    CHECK(skip[0] == (c.steps ? 0 : 1));
    if (!c.steps) {
      CHECK(scale[0] == 0);
      continue;
    }
    double squares = 0;
    for (size_t i = 0; i < c.facts.size(); ++i)
      if (static_cast<int64_t>(i) % width < c.rule.units) squares += c.facts[i];
    const double norm = std::sqrt(squares) / c.rule.loss_scale;
    const double coefficient = c.rule.max_norm > 0 ? std::min(1.0, c.rule.max_norm / (norm + 1e-6)) : 1;
    CHECK(scale[0] == Approx(coefficient / c.rule.loss_scale).epsilon(1e-6));
  }
}

TEST_CASE("a step's facts are the sum of its losses, its notices, and the first loss that is not finite") {
  const auto facts_of = [](const Values& losses) {
    const Array facts(DType::f64, {kStepFacts});
    WriteStepFacts({}, Array::Of(DType::f64, {static_cast<int64_t>(losses.size())}, losses), 3, facts);
    CHECK(facts.Intact());
    return facts.values();
  };
  CHECK(facts_of({1.5, 2.25, 4}) == Values{7.75, 3, -1});
  CHECK(facts_of({1e16, 1, -1e16, 1})[0] == 1);  // in order: the first 1 is lost
  CHECK(facts_of({1, HUGE_VAL, NAN})[2] == 1);
  CHECK(std::isnan(facts_of({1, HUGE_VAL, NAN})[0]));
  CHECK(facts_of({NAN})[2] == 0);
}

}  // namespace
}  // namespace ds::test
