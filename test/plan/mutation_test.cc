// Promise: the checker refuses a plan with one action removed or moved, one wait dropped, one operand changed, and
// names the action; what it lets pass is harmless.
#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/plan/check.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/planner.h"
#include "test/catch.h"
#include "test/plan/conflicts.h"
#include "test/plan/models.h"

namespace ds {
namespace {
using namespace test;

struct Sample {
  ModelLayout layout;
  Plan plan;
};

std::vector<Sample> Samples() {
  std::vector<Sample> samples;
  auto add = [&](int stage, bool exact, RecomputeMode recompute, int64_t max_live, const ModelConfig& model,
                 const Placement& placement = {}, bool updates_only = false) {
    ZeroConfig zero = SmallZero(stage);
    zero.reduce_bucket_size = 20000;
    PlanOptions o;
    o.stage = stage;
    o.ranks = 2;
    o.micro_batches = 2;
    o.exact_sharding = exact;
    o.recompute = recompute;
    o.max_live_parameters = max_live;
    o.placement = placement;
    o.updates_only = updates_only;
    ModelLayout layout = TinyLayout(model, zero, o.ranks, DType::f32, {2, 16}, recompute);
    Plan plan = BuildPlan(layout, o);
    samples.push_back({std::move(layout), std::move(plan)});
  };
  const int64_t plenty = 1'000'000'000;
  add(0, false, RecomputeMode::none, plenty, TinyGpt(1));
  add(0, true, RecomputeMode::none, plenty, TinyGpt(1));
  add(0, false, RecomputeMode::none, plenty, TinyLlama(1));
  add(1, false, RecomputeMode::activation, plenty, TinyLlama(1));
  add(1, false, RecomputeMode::attention, plenty, TinyLlama(1));
  add(2, false, RecomputeMode::full, plenty, TinyGpt(1));
  add(3, false, RecomputeMode::none, plenty, TinyGpt(1));
  add(3, false, RecomputeMode::full, 60'000, TinyLlama(2));
  const Tier device = Tier::device, host = Tier::host, file = Tier::file;
  add(1, false, RecomputeMode::none, plenty, TinyGpt(1), {host, host, device, device, 1, false});
  add(2, false, RecomputeMode::none, plenty, TinyGpt(1), {host, host, device, device, 1, true});
  add(2, false, RecomputeMode::full, plenty, TinyGpt(2), {file, file, device, host, 1, false});
  add(3, false, RecomputeMode::none, plenty, TinyLlama(1), {host, host, host, device, 0.5, true});
  add(3, false, RecomputeMode::attention, plenty, TinyLlama(2), {file, host, file, file, 1, false});
  add(3, false, RecomputeMode::none, plenty, TinyGpt(1), {file, file, host, device, 1, false}, true);
  return samples;
}

bool Names(const std::vector<std::string>& faults, const std::string& action) {
  for (const std::string& fault : faults)
    if (fault.find(action) != std::string::npos) return true;
  return false;
}

std::string Joined(const std::vector<std::string>& faults) {
  std::string text;
  for (const std::string& fault : faults) text += fault + "\n";
  return text;
}

std::vector<size_t> Identity(const Plan& plan) {
  std::vector<size_t> order(plan.actions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

TEST_CASE("a plan with one action removed is refused with the action named") {
  for (const Sample& s : Samples()) {
    REQUIRE(CheckPlan(s.layout, s.plan).empty());
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      std::vector<size_t> order = Identity(s.plan);
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
      const auto faults = CheckPlan(s.layout, Reordered(s.plan, order));
      INFO(s.plan.options.stage << " without " << Describe(s.layout, s.plan, i) << "\n" << Joined(faults));
      const Action& action = s.plan.actions[i];
      // Of a move the buffer that lacks what it brings.
      const Use* to = action.Find(Operand::to);
      CHECK(Names(faults, to ? s.plan.buffers[static_cast<size_t>(to->buffer)].name : Describe(s.layout, action)));
    }
  }
}

/// Faults of the moved plan, alone or beside a rank that runs the plan unmoved.
std::vector<std::string> FaultsOf(const Sample& s, const Plan& moved) {
  std::vector<std::string> faults = CheckPlan(s.layout, moved);
  if (faults.empty()) faults = CheckRanks(s.layout, {s.plan, moved});
  return faults;
}

TEST_CASE("a plan with two neighbours swapped is refused unless the swap is harmless") {
  int refused = 0, harmless = 0;
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i + 1 < s.plan.actions.size(); ++i) {
      const Action &first = s.plan.actions[i], &second = s.plan.actions[i + 1];
      std::vector<size_t> order = Identity(s.plan);
      std::swap(order[i], order[i + 1]);
      const auto faults = FaultsOf(s, Reordered(s.plan, order));
      INFO("stage " << s.plan.options.stage << ": " << Describe(s.layout, s.plan, i) << " after "
                    << Describe(s.layout, second) << "\n"
                    << Joined(faults));
      if (faults.empty()) {
        ++harmless;
        CHECK(!Conflict(s.plan, first, second));
        CHECK(!(first.kind == ActionKind::norm && second.kind == ActionKind::optimizer_step));
        const bool communicates = first.stream == StreamKind::gather || first.stream == StreamKind::reduce;
        CHECK(!(first.stream == second.stream && communicates));  // one communicator
      } else {
        ++refused;
        CHECK((Names(faults, Describe(s.layout, first)) || Names(faults, Describe(s.layout, second))));
      }
    }
  }
  CHECK(refused > 200);
  CHECK(harmless > 50);
}

TEST_CASE("a plan with one action moved far is refused unless the move is harmless") {
  std::mt19937 random(1);
  int refused = 0;
  for (const Sample& s : Samples()) {
    for (size_t from = 0; from < s.plan.actions.size(); ++from) {
      const size_t to = random() % s.plan.actions.size();
      std::vector<size_t> order = Identity(s.plan);
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(from));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), from);
      const auto faults = FaultsOf(s, Reordered(s.plan, order));
      bool passes_conflict = false;
      for (size_t i = std::min(from, to); i <= std::max(from, to); ++i)
        passes_conflict = passes_conflict || (i != from && Conflict(s.plan, s.plan.actions[i], s.plan.actions[from]));
      INFO("stage " << s.plan.options.stage << ": " << Describe(s.layout, s.plan, from) << " moved to " << to);
      if (passes_conflict) CHECK(!faults.empty());
      refused += !faults.empty();
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("every wait is needed: a plan without one of them is refused with its action named") {
  int waits = 0;
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      for (size_t w = 0; w < s.plan.actions[i].waits.size(); ++w, ++waits) {
        Plan plan = s.plan;
        plan.actions[i].waits.erase(plan.actions[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
        INFO("stage " << plan.options.stage << ": " << Describe(s.layout, plan, i) << " without wait "
                      << s.plan.actions[i].waits[w]);
        CHECK(Names(CheckPlan(s.layout, plan), Describe(s.layout, plan, s.plan.actions[i].waits[w])));
        plan = s.plan;
        plan.actions[static_cast<size_t>(plan.actions[i].waits[w])].signals = false;
        CHECK(Names(CheckPlan(s.layout, plan), "does not signal"));
        plan = s.plan;
        plan.actions[i].waits[w] = static_cast<int>(i) + 1;
        CHECK(Names(CheckPlan(s.layout, plan), "does not come before it"));
      }
    }
  }
  CHECK(waits > 100);
}

TEST_CASE("a plan with one operand missing or exchanged is refused with its action named") {
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      for (size_t u = 0; u < s.plan.actions[i].uses.size(); ++u) {
        Plan plan = s.plan;
        plan.actions[i].uses.erase(plan.actions[i].uses.begin() + static_cast<std::ptrdiff_t>(u));
        CHECK(Names(CheckPlan(s.layout, plan), Describe(s.layout, plan, i)));

        plan = s.plan;
        Use& use = plan.actions[i].uses[u];
        const Operand operand = use.operand;
        if (operand == Operand::scratch || operand == Operand::workspace) continue;  // any memory serves
        const bool saves = plan.actions[i].kind == ActionKind::forward && operand == Operand::saved;
        if (saves && Recomputes(s.layout.segments[static_cast<size_t>(plan.actions[i].segment)], plan.options))
          continue;                                                       // nobody reads it
        for (int other = use.buffer + 1; other != use.buffer; ++other) {  // the next buffer of the same kind
          if (other == static_cast<int>(plan.buffers.size())) other = 0;
          const auto &mine = plan.buffers[static_cast<size_t>(use.buffer)],
                     &its = plan.buffers[static_cast<size_t>(other)];
          if (other == use.buffer) break;
          if (its.kind != mine.kind) continue;
          use.buffer = other;
          INFO("stage " << plan.options.stage << ": " << Describe(s.layout, plan, i) << " " << mine.name << " -> "
                        << its.name);
          CHECK(!CheckPlan(s.layout, plan).empty());
          break;
        }
      }
    }
  }
}

TEST_CASE("an action that would be left out wrongly, or done wrongly, is refused") {
  int flipped = 0;
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      Plan plan = s.plan;
      Action& action = plan.actions[i];
      action.pending = !action.pending;
      INFO("stage " << plan.options.stage << ": " << Describe(s.layout, s.plan, i));
      CHECK(!CheckPlan(s.layout, plan).empty());
      flipped += s.plan.actions[i].pending;
    }
  }
  CHECK(flipped > 100);
}

TEST_CASE("gradients out of the order of micro-batches are refused") {
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      const ActionKind kind = s.plan.actions[i].kind;
      if (kind != ActionKind::backward_weight && kind != ActionKind::reduce) continue;
      Plan plan = s.plan;
      Action& action = plan.actions[i];
      action.accumulate = !action.accumulate;
      for (Use& use : action.uses)
        if (use.operand == (kind == ActionKind::reduce ? Operand::shard : Operand::grads))
          use.access = action.accumulate ? Access::update : Access::write;
      CHECK(!CheckPlan(s.layout, plan).empty());
    }
  }
}

TEST_CASE("a buffer that takes the memory of another is refused") {
  int tried = 0;
  for (const Sample& s : Samples()) {
    const auto last = LastUses(s.plan), first = FirstUses(s.plan);
    for (size_t a = 0; a < s.plan.buffers.size(); ++a) {
      for (size_t b = 0; b < s.plan.buffers.size(); ++b) {
        const Buffer &x = s.plan.buffers[a], &y = s.plan.buffers[b];
        if (a == b || x.kind == BufferKind::resident || y.kind == BufferKind::resident || x.tier != y.tier) continue;
        if (last[a] <= first[b] || last[b] <= first[a] || (a + b) % 7 != 0) continue;  // a part of the pairs
        Plan plan = s.plan;
        plan.buffers[a].offset = y.offset;
        int64_t& arena = plan.arena_bytes[static_cast<int>(x.tier)];
        arena = std::max(arena, y.offset + x.bytes);
        INFO("stage " << plan.options.stage << ": " << x.name << " on " << y.name);
        CHECK(!CheckPlan(s.layout, plan).empty());
        ++tried;
      }
    }
  }
  CHECK(tried > 300);
}

TEST_CASE("a plan that lacks a resident buffer, or refers to what is not there, is refused") {
  const Sample s = Samples()[3];
  for (size_t b = 0; b < s.plan.buffers.size(); ++b) {
    Plan plan = s.plan;
    plan.buffers[b].unit = -7;
    plan.buffers[b].slot = 1000;
    if (plan.buffers[b].unit != s.plan.buffers[b].unit && s.plan.buffers[b].unit >= 0)
      CHECK(Names(CheckPlan(s.layout, plan), plan.buffers[b].name));
    if (s.plan.buffers[b].kind != BufferKind::resident) continue;
    plan = s.plan;
    plan.buffers[b].state = StateKind::none;
    CHECK(Names(CheckPlan(s.layout, plan), "missing: buffer"));
  }
}

TEST_CASE("an all-gather of reduced gradients is there exactly under ZeRO-0") {
  for (const Sample& s : Samples()) {
    for (size_t i = 0; i < s.plan.actions.size(); ++i) {
      if (s.plan.actions[i].kind != ActionKind::reduce) continue;
      Plan plan = s.plan;
      plan.actions[i].all = !plan.actions[i].all;
      const bool harmless = plan.options.stage < 2 && plan.actions[i].all;  // sends more than it must
      CHECK((harmless || !CheckPlan(s.layout, plan).empty()));
    }
  }
}

TEST_CASE("ranks that would issue collectives in different orders are refused") {
  const Sample s = Samples()[2];
  for (size_t i = 0; i + 1 < s.plan.actions.size(); ++i) {
    const Action &first = s.plan.actions[i], &second = s.plan.actions[i + 1];
    if (first.kind != ActionKind::reduce || second.kind != ActionKind::reduce) continue;
    std::vector<size_t> order = Identity(s.plan);
    std::swap(order[i], order[i + 1]);
    const auto faults = CheckRanks(s.layout, {s.plan, s.plan, Reordered(s.plan, order)});
    REQUIRE(!faults.empty());
    CHECK(Names(faults, Describe(s.layout, first)));
    CHECK(Names(faults, "rank 2"));
    return;
  }
  FAIL("no neighbouring reductions");
}

TEST_CASE("a collective that one rank lacks is a deadlock with both ends named") {
  const Sample s = Samples()[0];
  Plan shorter = s.plan;
  for (size_t i = s.plan.actions.size(); i-- > 0;) {
    if (s.plan.actions[i].kind != ActionKind::norm) continue;
    std::vector<size_t> order = Identity(s.plan);
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
    shorter = Reordered(s.plan, order);
  }
  const auto faults = CheckRanks(s.layout, {s.plan, shorter});
  CHECK(Names(faults, "deadlock"));
  CHECK(Names(faults, "Norm"));
}

TEST_CASE("streams that wait for one another across ranks are a deadlock") {
  const ModelLayout layout = TinyLayout(TinyGpt(1), SmallZero(2), 2);
  auto collective = [](ActionKind kind, StreamKind stream) {
    Action action;
    action.kind = kind;
    action.stream = stream;
    action.unit = action.bucket = 0;
    if (kind == ActionKind::reduce) action.slot = 0;
    return action;
  };
  const Action gather = collective(ActionKind::gather, StreamKind::gather);
  const Action reduce = collective(ActionKind::reduce, StreamKind::reduce);
  Plan gather_first, reduce_first;
  gather_first.actions = {gather, reduce};
  gather_first.actions[1].waits = {0};
  reduce_first.actions = {reduce, gather};
  CHECK(CheckRanks(layout, {gather_first, reduce_first}).empty());
  reduce_first.actions[1].waits = {0};
  CHECK(Names(CheckRanks(layout, {gather_first, reduce_first}), "deadlock"));
}

}  // namespace
}  // namespace ds
