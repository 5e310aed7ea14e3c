// What a step decides on the GPU: the CPU's bits, since the host decides the same from the same numbers.
#include "kernels/step_decision.h"

#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/step_decision_inputs.h"

namespace ds::test {
namespace {

TEST_CASE("GPU: a step decides what the CPU decides") {
  const GpuContext context;
  for (const DecisionCase& c : DecisionCases()) {
    CAPTURE(c.name);
    const Array facts = Array::Of(DType::f64, {c.rule.ranks, c.rule.units + kStepFacts}, c.facts);
    Array scale(DType::f32, {1}), skip(DType::i32, {1});
    DecideStep({}, c.rule, facts, scale, skip);
    const GpuArray got_scale(DType::f32, {1}), got_skip(DType::i32, {1});
    DecideStep(context, c.rule, GpuArray(facts), got_scale, got_skip);
    CHECK(got_scale.Host() == scale);
    CHECK(got_skip.Host() == skip);
  }
}

TEST_CASE("GPU: a step's facts are the CPU's") {
  const GpuContext context;
  for (const Values& losses : {Values{5}, Values{1e16, 1, -1e16, 1}, Values{1, HUGE_VAL, NAN}, Values{1, 2, NAN}}) {
    const Array x = Array::Of(DType::f64, {static_cast<int64_t>(losses.size())}, losses);
    const Array want(DType::f64, {kStepFacts});
    const GpuArray got(DType::f64, {kStepFacts});
    WriteStepFacts({}, x, 2, want);
    WriteStepFacts(context, GpuArray(x), 2, got);
    CheckSame(got.Host(), want);
  }
}

}  // namespace
}  // namespace ds::test
