// Promise: sharding does not change the result on GPUs either, where sums have the order of NCCL's rings
// (docs/architecture.md). The argument: an element's order is a function of its reduce-scatter's size and of its place
// in it, and every stage issues the same reduce-scatters. Here both halves are tested, and their conclusion.
#include "test/layout/ring_order.h"

#include <map>
#include <set>

#include "runtime/plan/planner.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

/// Without `activation`, whose plan is that of none in GPT-2's shape.
const RecomputeMode kModes[] = {RecomputeMode::none, RecomputeMode::attention, RecomputeMode::full};

/// 3, 4 and 8 ranks, each with 1 sample a micro-batch or more; buckets of every size, some of them less than a chunk.
JobSpec RingSpec() {
  JobSpec spec = TinySpec();
  spec.batch.train_batch_size = 24;
  spec.zero.reduce_bucket_size = 3000;
  return spec;
}

RunOutcome RunStage(JobSpec spec, int stage, int ranks, bool rings) {
  spec.zero.stage = stage;
  RunOptions options{.ranks = ranks};
  if (rings)
    options.decorate = [](const std::string& stream, std::unique_ptr<Communicator> made) {
      return stream == "reduce" ? InRingOrder(std::move(made)) : std::move(made);
    };
  return Run(spec, options);
}

/// Returns stage 0's outcome.
RunOutcome RequireStagesAgree(const JobSpec& spec, int ranks, bool rings) {
  const RunOutcome first = RunStage(spec, 0, ranks, rings);
  REQUIRE(first.losses().size() == 20);
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage, ranks, rings);
    RequireSame(first, RunStage(spec, stage, ranks, rings));
  }
  return first;
}

TEST_CASE("stages agree on 3, 4 and 8 ranks in the order of rings, on 8 in rank order too, whatever is recomputed") {
  const int ranks = GENERATE(3, 4, 8);
  const bool rings = GENERATE(false, true);
  if (!rings && ranks != 8) return;  // stages_test.cc
  JobSpec spec = RingSpec();
  const RunOutcome kept = RequireStagesAgree(spec, ranks, rings);
  CHECK(kept.losses().back() < kept.losses().front() - 0.5);
  for (RecomputeMode mode : kModes) {
    if (mode == RecomputeMode::none) continue;
    CAPTURE(ranks, rings, static_cast<int>(mode));
    spec.training.recompute = mode;
    RequireSame(kept, RequireStagesAgree(spec, ranks, rings));
  }
}

TEST_CASE("so they do with accumulation under exact_sharding") {
  const int ranks = GENERATE(3, 4, 8);
  const bool rings = GENERATE(false, true);
  JobSpec spec = RingSpec();
  spec.batch.train_batch_size = 48;
  spec.batch.accumulation = 2;
  spec.training.exact_sharding = true;
  const RunOutcome kept = RequireStagesAgree(spec, ranks, rings);
  for (RecomputeMode mode : kModes) {
    if (mode == RecomputeMode::none) continue;
    CAPTURE(ranks, rings, static_cast<int>(mode));
    spec.training.recompute = mode;
    RequireSame(kept, RunStage(spec, mode == RecomputeMode::full ? 3 : 2, ranks, rings));
  }
}

TEST_CASE("rings add in another order than ranks, and buckets of another size in another than these") {
  // Otherwise the tests above would not tell the orders apart.
  for (int ranks : {3, 4, 8}) {
    CAPTURE(ranks);
    JobSpec spec = RingSpec();
    const RunOutcome rings = RunStage(spec, 2, ranks, true), in_rank_order = RunStage(spec, 2, ranks, false);
    CHECK(rings.losses() != in_rank_order.losses());
    CHECK(rings.losses().back() == Approx(in_rank_order.losses().back()).epsilon(1e-4));
    spec.zero.reduce_bucket_size = 4000;
    const RunOutcome other = RunStage(spec, 2, ranks, true);
    CHECK(other.state != rings.state);
  }
}

TEST_CASE("a ring's order names every rank once, ends at the owner, and depends on the size of the call") {
  for (int ranks : {1, 2, 3, 4, 8}) {
    const Rings rings{ranks};
    std::set<std::vector<int>> orders;
    for (int64_t count : {1, 64, 200, 960, 1000})
      for (int64_t at = 0; at < count; ++at)
        for (int owner = 0; owner < ranks; ++owner) {
          std::vector<int> order = rings.Order(count, at, owner);
          REQUIRE(order.back() == owner);
          if (owner == 0) orders.insert(order);
          std::sort(order.begin(), order.end());
          for (int r = 0; r < ranks; ++r) REQUIRE(order[static_cast<size_t>(r)] == r);
        }
    CHECK((orders.size() > 1) == (ranks > 2));  // channels differ
    bool differ = false;
    for (int64_t at = 0; at < 960; ++at) differ = differ || rings.Order(960, at, 0) != rings.Order(1000, at, 0);
    CHECK(differ == (ranks > 2));
  }
}

/// For every element of every gradient, the order of its sum in each micro-batch that reduces it; and the calls.
struct Sums {
  std::map<std::tuple<int, int, int64_t>, std::vector<int>> orders;  // (micro-batch, slot, element of the unit)
  std::vector<std::tuple<int, int, int64_t>> calls;                  // (micro-batch, slot, elements), in order
};

Sums SumsOf(JobSpec spec, int stage, int ranks) {
  spec.zero.stage = stage;
  spec.batch.micro_batch_size = spec.batch.train_batch_size / (ranks * spec.batch.accumulation);
  const ModelLayout layout = LayoutOf(spec, ranks);
  const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 0, ranks, DeviceKind::cuda));
  const Rings rings{ranks};
  Sums sums;
  bool twice = false;
  for (const Action& action : plan.actions) {
    if (action.kind != ActionKind::reduce) continue;
    const Bucket& bucket = layout.units[static_cast<size_t>(action.unit)].buckets[static_cast<size_t>(action.bucket)];
    const int64_t count = bucket.numel() / ranks;
    sums.calls.emplace_back(action.micro_batch, action.slot, bucket.numel());
    for (int owner = 0; owner < ranks; ++owner)
      for (int64_t at = 0; at < count; ++at) {
        const auto [place, is_new] = sums.orders.try_emplace(
            {action.micro_batch, action.slot, bucket.begin + owner * count + at}, rings.Order(count, at, owner));
        twice = twice || !is_new;
      }
  }
  REQUIRE_FALSE(twice);
  return sums;
}

TEST_CASE("every stage's plan issues the same reduce-scatters, so that every element's sum has one order") {
  const int ranks = GENERATE(3, 4, 8);
  for (int64_t bucket_size : {1000, 3000, 500'000'000})
    for (int64_t accumulation : {1, 2})
      for (int64_t threshold : {0, 100, 1'000'000}) {
        CAPTURE(ranks, bucket_size, accumulation, threshold);
        JobSpec spec = RingSpec();
        spec.batch.train_batch_size = 48;
        spec.batch.accumulation = accumulation;
        spec.training.exact_sharding = accumulation > 1;
        spec.zero.reduce_bucket_size = bucket_size;
        spec.zero.param_persistence_threshold = threshold;
        const Sums first = SumsOf(spec, 0, ranks);
        REQUIRE_FALSE(first.calls.empty());
        for (int stage = 1; stage <= 3; ++stage) {
          CAPTURE(stage);
          const Sums other = SumsOf(spec, stage, ranks);
          CHECK((other.calls == first.calls));
          CHECK((other.orders == first.orders));
        }
      }
}

}  // namespace
}  // namespace ds::layout_test
