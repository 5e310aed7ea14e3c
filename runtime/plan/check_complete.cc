#include <unordered_map>

#include "runtime/plan/checks.h"
#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

/// Of the activations that come from other stages or go there, and of their gradients.
void AddMessages(const ModelLayout& layout, const PlanOptions& options, std::vector<Action>& needed) {
  const ScheduleShape shape = ShapeOf(options);
  const std::vector<Chunk> chunks = ChunksOf(layout, options.pipeline);
  for (int boundary = 0; boundary + 1 < shape.chunks(); ++boundary) {
    for (const bool gradient : {false, true}) {
      const Channel channel = ChannelOf(shape, boundary, gradient);
      const int stage = options.pipeline.stage;
      if (channel.from == channel.to || (gradient && !options.training)) continue;
      if (channel.from != stage && channel.to != stage) continue;
      for (int64_t m = 0; m < MicroBatchesOf(options); ++m) {
        Action message;
        message.kind = channel.from == stage ? ActionKind::send : ActionKind::receive;
        message.segment = chunks[boundary].end - 1;
        message.micro_batch = static_cast<int>(m);
        message.gradient = gradient;
        message.peer = channel.from == stage ? channel.to : channel.from;
        needed.push_back(message);
      }
    }
  }
}

/// The actions that a step must have exactly once. Gathers and releases of sharded units and moves between tiers are
/// not among them: how often a unit is gathered or moved is the planner's choice, and CheckValues finds the missing
/// ones.
std::vector<Action> Needed(const ModelLayout& layout, const PlanOptions& options) {
  std::vector<Action> needed;
  const StageParts parts = PartsOf(layout, options);
  auto compute = [&](ActionKind kind, size_t segment, int64_t micro_batch) {
    Action action;
    action.kind = kind;
    action.segment = static_cast<int>(segment);
    action.micro_batch = static_cast<int>(micro_batch);
    needed.push_back(action);
  };
  for (int64_t m = 0; m < MicroBatchesOf(options); ++m) {
    for (size_t s = 0; s < layout.segments.size(); ++s) {
      if (!parts.segments[s]) continue;
      compute(ActionKind::forward, s, m);
      if (!options.training) continue;
      if (Recomputes(layout.segments[s], options)) compute(ActionKind::recompute, s, m);
      if (s > 0) compute(ActionKind::backward_input, s, m);
      compute(ActionKind::backward_weight, s, m);
    }
  }
  AddMessages(layout, options, needed);
  if (!options.training) return needed;

  const std::vector<bool> offloaded = OffloadedUnits(layout, options);
  const auto of_buckets = [&](ActionKind kind, StreamKind stream, int unit, bool pending = false) {
    for (size_t b = 0; b < layout.units[unit].buckets.size(); ++b) {
      needed.push_back(UnitAction(kind, stream, unit, static_cast<int>(b)));
      needed.back().pending = pending;
    }
  };
  const auto gathers = [&](int unit, bool pending) {
    if (options.stage > 0 && !ShardsParameters(layout.units[unit], options))
      of_buckets(ActionKind::gather, StreamKind::gather, unit, pending);
  };
  const bool defers = DefersUpdates(options);
  for (int unit = 0; unit < static_cast<int>(layout.units.size()); ++unit) {
    if (!defers || !offloaded[unit]) continue;
    of_buckets(ActionKind::optimizer_step, StreamKind::host, unit, true);
    gathers(unit, true);
  }
  if (options.updates_only) return needed;
  const int64_t first = ReducesEachMicroBatch(options) ? 0 : options.micro_batches - 1;
  std::vector<int> uses(layout.units.size(), 0);
  for (size_t s = 0; s < layout.slots.size(); ++s) {
    const int unit = layout.slots[s].unit;
    if (!parts.units[unit]) continue;
    if (++uses[unit] == 2) {
      if (offloaded[unit])
        of_buckets(ActionKind::sum_tied, StreamKind::host, unit);
      else
        needed.push_back(UnitAction(ActionKind::sum_tied, StreamKind::compute, unit));
    }
    const int other = OtherStageOf(layout, parts, options, static_cast<int>(s));
    for (size_t b = 0; b < layout.units[unit].buckets.size(); ++b) {
      if (other >= 0) {
        Action message = UnitAction(parts.slots[s] ? ActionKind::send : ActionKind::receive, StreamKind::tied, unit,
                                    static_cast<int>(b));
        message.slot = static_cast<int>(s);
        message.state = StateKind::gradient;
        message.peer = other;
        needed.push_back(message);
      }
      if (!parts.slots[s]) continue;
      for (int64_t m = first; m < options.micro_batches; ++m) {
        Action reduce = UnitAction(ActionKind::reduce, StreamKind::reduce, unit, static_cast<int>(b));
        reduce.segment = layout.slots[s].segment;
        reduce.slot = static_cast<int>(s);
        reduce.micro_batch = static_cast<int>(m);
        needed.push_back(reduce);
      }
    }
  }
  Action norm;
  norm.kind = ActionKind::norm;
  needed.push_back(norm);
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const int unit = static_cast<int>(u);
    if (!parts.units[u]) continue;
    const bool below = ShardsParameters(layout.units[u], options) && options.placement.parameters != Tier::device;
    if (offloaded[u]) of_buckets(ActionKind::squares, StreamKind::host, unit);
    if (offloaded[u] && defers) continue;
    if (offloaded[u] || below)
      of_buckets(ActionKind::optimizer_step, offloaded[u] ? StreamKind::host : StreamKind::compute, unit);
    else
      needed.push_back(UnitAction(ActionKind::optimizer_step, StreamKind::compute, unit));
    gathers(unit, false);
  }
  return needed;
}

}  // namespace

void CheckComplete(const ModelLayout& layout, const Plan& plan, Faults& faults) {
  std::unordered_map<std::string, size_t> at;  // an action's name: where it is
  for (size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    const bool repeats =
        action.kind == ActionKind::release || IsMove(action) ||
        (action.kind == ActionKind::gather && ShardsParameters(layout.units[action.unit], plan.options));
    if (repeats) continue;
    const auto [it, fresh] = at.try_emplace(Describe(layout, action), a);
    if (!fresh) faults.At(a, "was done already by " + Describe(layout, plan, it->second));
  }
  for (const Action& action : Needed(layout, plan.options)) {
    const std::string name = Describe(layout, action);
    if (at.erase(name) == 0) faults.Add("missing: " + name);
  }
  for (const auto& [name, a] : at) faults.At(a, "is not part of this step");
}

}  // namespace ds
