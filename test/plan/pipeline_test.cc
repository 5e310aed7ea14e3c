// Promises: stages are cut as parallel.partition says; plans of stages whose messages differ, are missing or wait for
// one another are refused with both ends named; thousands of ranks are checked by role; what the plans predict together
// is what their parts come to.
#include <algorithm>
#include <chrono>

#include "runtime/base/error.h"
#include "runtime/plan/check.h"
#include "runtime/plan/partition.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/price.h"
#include "runtime/plan/stages.h"
#include "test/catch.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

struct Sample {
  ModelLayout layout;
  std::vector<Plan> stages;
};

Sample Cut(int stages, ScheduleKind schedule, int ranks = 1, int zero = 1, int64_t micro_batches = 4, int layers = 4) {
  Sample s;
  s.layout = TinyLayout(TinyGpt(layers), SmallZero(zero), ranks);
  PlanOptions o;
  o.ranks = ranks;
  o.stage = zero;
  o.micro_batches = micro_batches;
  o.pipeline.stages = stages;
  o.pipeline.schedule = schedule;
  o.pipeline.virtual_stages = schedule == ScheduleKind::zb_v || schedule == ScheduleKind::interleaved ? 2 : 1;
  o.pipeline.begin = Balance(std::vector<double>(s.layout.segments.size(), 1), stages * o.pipeline.virtual_stages);
  s.stages = BuildStagePlans(s.layout, o, Machine());
  return s;
}

bool Names(const std::vector<std::string>& faults, const std::string& part) {
  return std::any_of(faults.begin(), faults.end(),
                     [&](const std::string& fault) { return fault.find(part) != std::string::npos; });
}

/// The first action of a kind, at or behind `from`.
size_t Find(const Plan& plan, ActionKind kind, size_t from = 0) {
  for (size_t a = from; a < plan.actions.size(); ++a)
    if (plan.actions[a].kind == kind) return a;
  FAIL("no such action");
  return 0;
}

/// The plan without action `gone`; whoever waited for it does not.
Plan Without(Plan plan, size_t gone) {
  plan.actions.erase(plan.actions.begin() + static_cast<std::ptrdiff_t>(gone));
  for (Action& action : plan.actions) {
    std::erase(action.waits, static_cast<int>(gone));
    for (int& wait : action.waits)
      if (wait > static_cast<int>(gone)) --wait;
  }
  return plan;
}

TEST_CASE("a row of weights is cut so that the heaviest part is as light as can be, and the others alike") {
  CHECK(Balance({1, 1, 1, 1}, 2) == std::vector<int>{0, 2});
  CHECK(Balance({1, 1, 1, 1, 1}, 5) == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(Balance({5, 1, 1, 1}, 2) == std::vector<int>{0, 1});
  CHECK(Balance({0, 9, 0, 0, 9, 0}, 2).size() == 2);
  CHECK(Balance({10, 1, 1, 1, 1, 1, 1}, 4) == std::vector<int>{0, 1, 3, 5});
  CHECK(Balance({3}, 1) == std::vector<int>{0});
}

TEST_CASE("each way to cut has equal parts of what it names") {
  const ModelLayout layout = TinyLayout(TinyLlama(6), SmallZero(), 1);  // 14 segments
  PlanOptions options;
  const auto cut = [&](const std::string& partition, int stages) {
    ParallelConfig parallel;
    parallel.pipeline = stages;
    parallel.partition = partition;
    return CutSegments(layout, options, parallel, stages, Machine());
  };
  CHECK(cut("uniform", 2) == std::vector<int>{0, 7});
  const auto count = [&](const std::vector<int>& begin, size_t part, SegmentKind kind) {
    const size_t end = part + 1 < begin.size() ? static_cast<size_t>(begin[part + 1]) : layout.segments.size();
    int found = 0;
    for (size_t s = static_cast<size_t>(begin[part]); s < end; ++s) found += layout.segments[s].kind == kind;
    return found;
  };
  for (size_t part = 0; part < 3; ++part) {
    CHECK(count(cut("type:attention", 3), part, SegmentKind::attention) == 2);
    CHECK(count(cut("type:ATT|mlp", 3), part, SegmentKind::mlp) == 2);
  }
  const auto heaviest = [&](const std::vector<int>& begin, const std::vector<double>& weights) {
    double most = 0;
    for (size_t part = 0; part < begin.size(); ++part) {
      const size_t end = part + 1 < begin.size() ? static_cast<size_t>(begin[part + 1]) : weights.size();
      double sum = 0;
      for (size_t s = static_cast<size_t>(begin[part]); s < end; ++s) sum += weights[s];
      most = std::max(most, sum);
    }
    return most;
  };
  const std::vector<double> seconds = SegmentSeconds(layout, options, Machine());
  CHECK(heaviest(cut("time", 4), seconds) <= heaviest(cut("uniform", 4), seconds));
  std::vector<double> parameters;
  for (const SegmentSpec& segment : layout.segments) {
    parameters.push_back(0);
    for (const ParamSpec& param : segment.params) parameters.back() += static_cast<double>(param.shape.numel());
  }
  CHECK(heaviest(cut("parameters", 4), parameters) <= heaviest(cut("uniform", 4), parameters));
  try {
    cut("time", 15);
    FAIL("cut");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).find("it has 14 segments") != std::string::npos);
    CHECK(std::string(error.what()).find("write parallel.pipeline 14 or less") != std::string::npos);
  }
}

TEST_CASE("a stage's plan has its own segments, and a tied table is owned by the first of its two stages") {
  const Sample s = Cut(3, ScheduleKind::one_f_one_b, 2, 3);
  for (const Plan& plan : s.stages) {
    const StageParts parts = PartsOf(s.layout, plan.options);
    const bool end = plan.options.pipeline.stage != 1;
    CHECK(parts.units[0] == end);
    CHECK(parts.owned[0] == (plan.options.pipeline.stage == 0));
    for (const Action& action : plan.actions)
      if (action.kind <= ActionKind::backward_weight) CHECK(parts.segments[static_cast<size_t>(action.segment)]);
    int tied = 0;
    for (const Action& action : plan.actions) tied += action.stream == StreamKind::tied;
    CHECK(tied == (end ? 2 * static_cast<int>(s.layout.units[0].buckets.size()) : 0));
  }
  // ZB-V has both ends on one stage: nothing is exchanged.
  for (const Plan& plan : Cut(2, ScheduleKind::zb_v).stages)
    for (const Action& action : plan.actions) CHECK(action.stream != StreamKind::tied);
}

TEST_CASE("messages that are missing, doubled, out of order or of another size are refused, with both ends") {
  for (ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_v}) {
    const Sample s = Cut(2, kind);
    REQUIRE(CheckRanks(s.layout, s.stages).empty());
    for (ActionKind message : {ActionKind::send, ActionKind::receive}) {
      const size_t at = Find(s.stages[1], message);
      const std::string name = Describe(s.layout, s.stages[1].actions[at]);
      CAPTURE(static_cast<int>(kind), name);

      const Plan lacks = Without(s.stages[1], at);
      CHECK(Names(CheckPlan(s.layout, lacks), "missing: " + name));
      CHECK(Names(CheckRanks(s.layout, {s.stages[0], lacks}), "rank 0 is at "));

      Plan changed = s.stages[1];
      changed.actions[at].bytes /= 2;
      CHECK(Names(CheckPlan(s.layout, changed), name + ": carries "));
      CHECK(Names(CheckRanks(s.layout, {s.stages[0], changed}), name));

      changed = s.stages[1];
      changed.actions[at].micro_batch = 3;
      CHECK(!CheckPlan(s.layout, changed).empty());
      CHECK(!CheckRanks(s.layout, {s.stages[0], changed}).empty());

      changed = s.stages[1];
      changed.actions[at].peer = 1;
      CHECK(Names(CheckPlan(s.layout, changed), "names no other stage"));
    }
    Plan other = s.stages[1];
    other.options.compute = DType::bf16;
    CHECK(!CheckRanks(s.layout, {s.stages[0], other}).empty());
  }
}

TEST_CASE("stages that wait for one another are a deadlock, and none is made") {
  const Sample s = Cut(2, ScheduleKind::gpipe);
  Plan first = s.stages[0];
  // Its first Send waits for the first gradient, which cannot come before.
  const size_t send = Find(first, ActionKind::send), gradient = Find(first, ActionKind::receive);
  std::swap(first.actions[send], first.actions[gradient]);
  first.actions[gradient].waits = {static_cast<int>(send)};
  CHECK(Names(CheckRanks(s.layout, {first, s.stages[1]}), "deadlock"));
}

TEST_CASE("what a stage receives late is not read before") {
  const Sample s = Cut(2, ScheduleKind::one_f_one_b);
  Plan second = s.stages[1];
  const size_t receive = Find(second, ActionKind::receive), forward = Find(second, ActionKind::forward);
  REQUIRE(receive < forward);
  REQUIRE(second.actions[forward].waits.size() > 0);
  second.actions[forward].waits.clear();
  CHECK(Names(CheckPlan(s.layout, second), "without waiting for"));
}

TEST_CASE("ranks of a stage that differ are followed one by one") {
  const Sample s = Cut(2, ScheduleKind::one_f_one_b, 2, 3);
  std::vector<Plan> plans;
  for (const Plan& stage : s.stages)
    for (int rank = 0; rank < 2; ++rank) plans.push_back(stage), plans.back().options.rank = rank;
  REQUIRE(CheckRanks(s.layout, plans).empty());
  const size_t gather = Find(plans[3], ActionKind::gather);
  plans[3] = Without(plans[3], gather);
  const auto faults = CheckRanks(s.layout, plans);
  REQUIRE(!faults.empty());
  CHECK(Names(faults, "rank 3"));
}

TEST_CASE("a model of 175 billion parameters over 64 x 64 ranks is planned, checked and priced by role") {
  ModelConfig m;
  m.layers = 96;
  m.hidden = 12288;
  m.heads = m.kv_heads = 96;
  m.ffn = 4 * m.hidden;
  m.vocabulary = 50257;
  m.max_positions = 2048;
  ZeroConfig zero;
  zero.stage = 1;
  const ModelLayout layout =
      BuildLayout(BuildSegments(m, DType::bf16, {1, 2048}, false, RecomputeMode::full), zero, 64);
  PlanOptions o;
  o.device = DeviceKind::cuda;
  o.ranks = 64;
  o.stage = 1;
  o.compute = DType::bf16;
  o.micro_batches = 128;
  o.recompute = RecomputeMode::full;
  const Machine machine = DefaultMachine(DeviceKind::cuda);
  ParallelConfig parallel;
  parallel.pipeline = o.pipeline.stages = 64;
  o.pipeline.begin = CutSegments(layout, o, parallel, 64, machine);
  const std::vector<Plan> stages = BuildStagePlans(layout, o, machine);
  REQUIRE(stages.size() == 64);
  CHECK(CheckRanks(layout, stages).empty());
  const double step = stages.front().price.step_seconds;
  for (const Plan& plan : stages) {
    CHECK(plan.price.step_seconds == step);
    CHECK(plan.price.compute_seconds < step);
  }
  CHECK(PipelineText(layout, stages, machine).find("pipeline of 64 stages, 1f1b, 128 micro-batches") == 0);
}

TEST_CASE("stages of equal time and free messages idle as their schedule says") {
  Machine machine;
  machine.latency_seconds = 0;
  machine.link_bytes = 1e30;
  machine.memory_bytes = 1e30;  // arithmetic alone counts
  ModelConfig model = TinyGpt(4);
  const ModelLayout layout = TinyLayout(model, SmallZero(1), 1, DType::f32, {2, 16});
  for (int64_t m : {4, 16}) {
    PlanOptions o;
    o.stage = 1;
    o.micro_batches = m;
    o.pipeline.stages = 2;
    o.pipeline.begin = {0, 5};
    const std::vector<Plan> stages = BuildStagePlans(layout, o, machine);
    // The slower stage works all the time but for the other's first forward and last backward.
    const double slow = std::max(stages[0].price.compute_seconds, stages[1].price.compute_seconds);
    const double fast = std::min(stages[0].price.compute_seconds, stages[1].price.compute_seconds);
    CHECK(stages[0].price.step_seconds >= slow);
    CHECK(stages[0].price.step_seconds <= slow + fast / static_cast<double>(m) * 1.01);
    CHECK(stages[0].price.step_seconds == stages[1].price.step_seconds);
  }
}

}  // namespace
}  // namespace ds
