// Promise: the planner's plans pass the checker for any layout, stage and budget.
#include "runtime/plan/plan.h"

#include "runtime/base/error.h"
#include "runtime/plan/check.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

TEST_CASE("every stage plans") {
  const int stage = GENERATE(0, 1, 2, 3);
  const auto recompute = GENERATE(RecomputeMode::none, RecomputeMode::attention, RecomputeMode::full);
  const int ranks = GENERATE(1, 2, 3);
  const DType compute = GENERATE(DType::f32, DType::bf16, DType::f64);
  const bool exact = GENERATE(false, true);
  const bool training = GENERATE(true, false);
  CAPTURE(stage, ranks, exact, training);
  PlanOptions o;
  o.ranks = ranks;
  o.stage = stage;
  o.recompute = recompute;
  o.compute = compute;
  o.micro_batches = 2;
  o.exact_sharding = exact;
  o.training = training;
  for (const ModelConfig& model : {TinyGpt(), TinyLlama()}) {
    const ModelLayout layout = TinyLayout(model, SmallZero(stage), ranks, compute);
    const Plan plan = BuildPlan(layout, o);
    CHECK(CheckRanks(layout, std::vector<Plan>(static_cast<size_t>(ranks), plan)).empty());
    CHECK(!ToText(layout, plan).empty());
  }
}

}  // namespace
}  // namespace ds
