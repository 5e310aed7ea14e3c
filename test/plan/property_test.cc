// Promise: plans drawn over models, layouts, stages and budgets pass the checker, keep their budgets, and order every
// conflict. BuildPlan itself throws when CheckPlan finds fault.
#include <algorithm>
#include <map>
#include <random>

#include "runtime/plan/check.h"
#include "runtime/plan/lifetime.h"
#include "runtime/plan/partition.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"
#include "test/catch.h"
#include "test/plan/conflicts.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

struct Drawn {
  ModelLayout layout;
  PlanOptions options;
};

template <class T>
T Pick(std::mt19937& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

Drawn Draw(uint32_t seed, int64_t least_bucket = 1) {
  std::mt19937 random(seed);
  ModelConfig model = random() % 2 ? TinyGpt() : TinyLlama();
  model.layers = Pick<int64_t>(random, {1, 2, 3, 5});
  model.dropout = Pick(random, {0.0, 0.1});
  model.tied_head = random() % 2;
  ZeroConfig zero;
  zero.stage = Pick(random, {0, 1, 2, 3, 3, 3});
  zero.reduce_bucket_size = std::max(least_bucket, Pick<int64_t>(random, {1, 7000, 20000, 500'000'000}));
  zero.allgather_bucket_size = Pick<int64_t>(random, {9000, 500'000'000});
  zero.param_persistence_threshold = Pick<int64_t>(random, {0, 100, 5000, 1'000'000});
  zero.model_persistence_threshold = Pick<int64_t>(random, {0, 20000, INT64_MAX});
  Drawn drawn;
  PlanOptions& o = drawn.options;
  o.ranks = Pick(random, {1, 2, 3, 8});
  o.stage = zero.stage;
  o.compute = Pick(random, {DType::f32, DType::bf16, DType::f64});
  o.micro_batches = Pick<int64_t>(random, {1, 2, 3});
  o.recompute =
      Pick(random, {RecomputeMode::none, RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full});
  o.exact_sharding = random() % 2;
  o.moments = static_cast<int>(random() % 3);
  o.prefetch_bucket_size = Pick<int64_t>(random, {0, 20000, 40000, 50'000'000});
  o.max_live_parameters = Pick<int64_t>(random, {0, 30000, 50000, 80000, 150000, 1'000'000'000});
  o.max_reuse_distance = Pick<int64_t>(random, {0, 40000, 100000, 1'000'000'000});
  o.training = random() % 5 != 0;
  const MicroBatchShape shape{Pick<int64_t>(random, {1, 2, 5}), Pick<int64_t>(random, {7, 16})};
  drawn.layout = BuildLayout(BuildSegments(model, o.compute, shape, false, o.recompute), zero, o.ranks);
  return drawn;
}

/// The same model over the ranks that `drawn.options` now has.
Drawn Redrawn(Drawn drawn) {
  std::vector<SegmentSpec> segments = drawn.layout.segments;
  ZeroConfig zero;
  zero.stage = drawn.options.stage;
  zero.reduce_bucket_size = 7000;
  zero.param_persistence_threshold = 100;
  drawn.layout = BuildLayout(std::move(segments), zero, drawn.options.ranks);
  return drawn;
}

/// State on any tier that the stage has it on.
Placement DrawPlacement(uint32_t seed, int stage) {
  std::mt19937 random(seed + 1'000'000);
  Placement p;
  if (stage == 0) return p;
  p.optimizer = Pick(random, {Tier::device, Tier::host, Tier::host, Tier::file});
  p.gradients = p.optimizer == Tier::device ? Tier::device : Pick(random, {Tier::device, Tier::host, Tier::file});
  p.parameters = stage == 3 ? Pick(random, {Tier::device, Tier::host, Tier::file}) : Tier::device;
  p.activations = Pick(random, {Tier::device, Tier::host, Tier::file});
  p.optimizer_ratio = Pick(random, {1.0, 1.0, 0.5, 0.0});
  p.steps_early = random() % 2;
  return p;
}

void CheckArena(const Plan& plan) {
  const std::vector<Lifetime> lifetimes = Lifetimes(plan);
  const std::vector<int> last = LastUses(plan);
  for (size_t a = 0; a < plan.buffers.size(); ++a) {
    const Buffer& x = plan.buffers[a];
    if (x.kind == BufferKind::resident) continue;
    REQUIRE(lifetimes[a].first >= 0);
    REQUIRE(lifetimes[a].last >= last[a]);
    REQUIRE(x.offset % 64 == 0);
    for (size_t b = 0; b < a; ++b) {
      if (plan.buffers[b].kind == BufferKind::resident) continue;
      const bool together = lifetimes[a].first <= lifetimes[b].last && lifetimes[b].first <= lifetimes[a].last;
      if (together) REQUIRE(!SharesMemory(plan, static_cast<int>(a), -1, static_cast<int>(b), -1));
    }
  }
}

void CheckOrderedByBruteForce(const Plan& plan) {
  const auto reach = Reachability(plan);
  for (size_t i = 0; i < plan.actions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!reach[i][j] && Conflict(plan, plan.actions[i], plan.actions[j])) FAIL("unordered: " << j << " and " << i);
}

/// Elements that the action reads of units that are gathered.
int64_t SingleNeed(const Plan& plan, const Action& action) {
  int64_t need = 0;
  for (const Use& use : action.uses)
    if (use.operand == Operand::params && plan.buffers[static_cast<size_t>(use.buffer)].kind == BufferKind::gathered)
      need += plan.buffers[static_cast<size_t>(use.buffer)].numel;
  return need;
}

void CheckBudgets(const ModelLayout& layout, const Plan& plan) {
  const PlanOptions& o = plan.options;
  int64_t most_needed = 0;
  for (const Action& action : plan.actions) most_needed = std::max(most_needed, SingleNeed(plan, action));

  std::map<int, size_t> last_read;  // live gathered buffers: 0 before their first use, then 1 + the last reader
  std::vector<int64_t> read_before{0};
  int64_t live = 0;
  for (const Action& action : plan.actions) {
    const Use* whole = action.Find(Operand::whole);
    if (action.kind == ActionKind::gather &&
        plan.buffers[static_cast<size_t>(whole->buffer)].kind == BufferKind::gathered) {
      if (last_read.try_emplace(whole->buffer, 0).second) live += layout.units[static_cast<size_t>(action.unit)].numel;
      CHECK(live <= std::max(o.max_live_parameters, most_needed));
    }
    if (action.kind == ActionKind::release) {
      REQUIRE(last_read.erase(whole->buffer) == 1);
      live -= layout.units[static_cast<size_t>(action.unit)].numel;
    }
    if (SingleNeed(plan, action) == 0) continue;
    for (const Use& use : action.uses) {
      const auto it = last_read.find(use.buffer);
      if (use.operand != Operand::params || it == last_read.end()) continue;
      if (it->second > 0) CHECK(read_before.back() - read_before[it->second] <= o.max_reuse_distance);
      it->second = read_before.size();
    }
    read_before.push_back(read_before.back() + SingleNeed(plan, action));
    int64_t ahead = 0;
    for (const auto& [buffer, reads] : last_read)
      if (reads == 0) ahead += plan.buffers[static_cast<size_t>(buffer)].numel;
    CHECK(ahead <= o.prefetch_bucket_size);
  }
  CHECK(last_read.empty());
  CHECK(live == 0);
}

/// What pending actions move: between tiers and ranks.
int64_t UpdateBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const Action& action : plan.actions) bytes += action.pending ? action.bytes : 0;
  return bytes;
}

/// A segment's first forward waits for the late updates of its own units, and for none of units that come behind them.
void CheckLate(const ModelLayout& layout, const Plan& plan) {
  const auto reach = Reachability(plan);
  std::vector<bool> of_these(layout.units.size(), false);  // units of the segments so far
  for (size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& forward = plan.actions[a];
    if (forward.kind != ActionKind::forward || forward.micro_batch > 0) continue;
    for (int unit : layout.units_of[static_cast<size_t>(forward.segment)]) of_these[static_cast<size_t>(unit)] = true;
    for (size_t u = 0; u < plan.actions.size(); ++u) {
      const Action& update = plan.actions[u];
      if (update.kind != ActionKind::optimizer_step || !update.pending) continue;
      INFO(Describe(layout, plan, a) << " and " << Describe(layout, plan, u));
      CHECK(reach[a][u] == of_these[static_cast<size_t>(update.unit)]);
    }
  }
}

TEST_CASE("drawn plans hold every promise") {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const Drawn drawn = Draw(seed);
    const Plan plan = BuildPlan(drawn.layout, drawn.options);
    CHECK(CheckRanks(drawn.layout, std::vector<Plan>(static_cast<size_t>(drawn.options.ranks), plan)).empty());
    CHECK(ToText(drawn.layout, plan) == ToText(drawn.layout, BuildPlan(drawn.layout, drawn.options)));
    CheckBudgets(drawn.layout, plan);
    if (plan.actions.size() < 250) {
      CheckArena(plan);
      CheckOrderedByBruteForce(plan);
    }
  }
}

/// A pipeline of `drawn`'s model, cut anywhere.
PipelinePlace DrawPipeline(uint32_t seed, const ModelLayout& layout) {
  std::mt19937 random(seed + 2'000'000);
  PipelinePlace p;
  p.schedule = Pick(random, {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                             ScheduleKind::zb_h1, ScheduleKind::zb_v});
  p.virtual_stages = p.schedule == ScheduleKind::zb_v          ? 2
                     : p.schedule == ScheduleKind::interleaved ? Pick(random, {1, 2, 3})
                                                               : 1;
  const int segments = static_cast<int>(layout.segments.size());
  p.stages = std::min(Pick(random, {2, 2, 3, 4}), segments / p.virtual_stages);
  if (p.stages < 2) p.stages = 2, p.virtual_stages = 1, p.schedule = ScheduleKind::one_f_one_b;
  std::vector<int> cuts;
  for (int s = 1; s < segments; ++s) cuts.push_back(s);
  std::shuffle(cuts.begin(), cuts.end(), random);
  cuts.resize(static_cast<size_t>(p.stages * p.virtual_stages - 1));
  cuts.push_back(0);
  std::sort(cuts.begin(), cuts.end());
  p.begin = cuts;
  return p;
}

/// Plans of all ranks, stage by stage.
std::vector<Plan> PlansOfRanks(const Drawn& drawn, const std::vector<Plan>& stages) {
  std::vector<Plan> plans;
  for (const Plan& stage : stages) {
    for (int rank = 0; rank < drawn.options.ranks; ++rank) {
      plans.push_back(stage);
      plans.back().options.rank = rank;
    }
  }
  return plans;
}

TEST_CASE("drawn pipelines hold every promise, on every stage and across stages") {
  int messages = 0, moves = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn = Draw(seed, 7000);
    drawn.options.ranks = std::min(drawn.options.ranks, 3);
    std::mt19937 random(seed);
    drawn.options.micro_batches = Pick<int64_t>(random, {1, 2, 3, 4, 5, 8});
    drawn = Redrawn(drawn);
    if (seed % 2) drawn.options.placement = DrawPlacement(seed, drawn.options.stage);
    drawn.options.pipeline = DrawPipeline(seed, drawn.layout);
    const std::vector<Plan> stages = BuildStagePlans(drawn.layout, drawn.options, Machine());
    const std::vector<Plan> plans = PlansOfRanks(drawn, stages);
    CHECK(CheckRanks(drawn.layout, plans, true).empty());
    CHECK(CheckRanks(drawn.layout, plans, false).empty());
    CHECK(CheckRanks(drawn.layout, stages).empty());
    std::vector<int> owners(drawn.layout.units.size(), 0), segments(drawn.layout.segments.size(), 0);
    for (const Plan& plan : stages) {
      CheckBudgets(drawn.layout, plan);
      const StageParts parts = PartsOf(drawn.layout, plan.options);
      for (size_t u = 0; u < owners.size(); ++u) owners[u] += parts.owned[u];
      for (size_t s = 0; s < segments.size(); ++s) segments[s] += parts.segments[s];
      for (const Action& action : plan.actions) messages += IsMessage(action), moves += IsMove(action);
      if (plan.actions.size() < 250) {
        CheckArena(plan);
        CheckOrderedByBruteForce(plan);
      }
    }
    for (int count : owners) CHECK(count == 1);
    for (int count : segments) CHECK(count == 1);
  }
  CHECK(messages > 2000);
  CHECK(moves > 2000);
}

TEST_CASE("so do drawn plans that keep state on the host and in files") {
  int moves = 0, late = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Drawn drawn = Draw(seed, 7000);
    drawn.options.placement = DrawPlacement(seed, drawn.options.stage);
    const Plan plan = BuildPlan(drawn.layout, drawn.options);
    CHECK(CheckRanks(drawn.layout, std::vector<Plan>(static_cast<size_t>(drawn.options.ranks), plan)).empty());
    CHECK(ToText(drawn.layout, plan) == ToText(drawn.layout, BuildPlan(drawn.layout, drawn.options)));
    CheckBudgets(drawn.layout, plan);
    for (const Action& action : plan.actions) moves += IsMove(action);
    if (plan.actions.size() < 250) {
      CheckArena(plan);
      CheckOrderedByBruteForce(plan);
    }
    if (!HasPending(plan)) continue;
    ++late;
    if (plan.actions.size() < 250) CheckLate(drawn.layout, plan);
    const Plan updates = BuildPlan(drawn.layout, UpdatesOnly(drawn.options));
    CHECK(CheckRanks(drawn.layout, std::vector<Plan>(static_cast<size_t>(drawn.options.ranks), updates)).empty());
    for (int t = 0; t < kTiers; ++t) CHECK(updates.arena_bytes[t] <= plan.arena_bytes[t]);
    CheckArena(updates);
    CheckOrderedByBruteForce(updates);
    CHECK(UpdateBytes(updates) == UpdateBytes(plan));
  }
  CHECK(moves > 10000);
  CHECK(late > 50);
}

}  // namespace
}  // namespace ds
