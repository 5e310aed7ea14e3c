// What each rank keeps all the time, by ZeRO stage, and who reads and writes it.
//
//   stage  working            master, moments  gradient
//   0      whole              whole            whole
//   1      whole              shard            whole (exact_sharding: shard)
//   2      whole              shard            shard
//   3      shard; small whole shard            shard
//
// With fp32 (f64) compute the master is the working copy, or the owned ranges of it, and takes no bytes; unless the two
// are on different tiers, or in files, where each is moved by itself.
//
// PlanOptions::placement says on which tier: master and moments; gradients where they are shards; the working copy
// where it is a shard.
#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

class Residency {
 public:
  Residency(const ModelLayout& layout, Plan& plan)
      : layout_(layout),
        plan_(plan),
        options_(plan.options),
        parts_(PartsOf(layout, plan.options)),
        offloaded_(OffloadedUnits(layout, plan.options)) {}

  void AddBuffers() {
    for (size_t u = 0; u < layout_.units.size(); ++u)
      if (parts_.units[u]) AddUnit(static_cast<int>(u));
    if (!options_.training) return;
    for (size_t s = 0; s < layout_.slots.size(); ++s)
      if (parts_.slots[s] || parts_.slots_abroad[s]) AddGradient(static_cast<int>(s));
  }

 private:
  int Add(StateKind state, int unit, bool whole, Tier tier, std::string suffix = "") {
    Buffer buffer;
    buffer.name = layout_.units[unit].name + "/" + NameOf(state) + suffix;
    buffer.kind = BufferKind::resident;
    buffer.tier = tier;
    buffer.numel = whole ? layout_.units[unit].numel : layout_.ShardNumel(unit);
    buffer.bytes = buffer.numel * static_cast<int64_t>(SizeOf(DTypeOfState(state, options_.compute)));
    buffer.state = state;
    buffer.unit = unit;
    buffer.whole = whole;
    return AddBuffer(plan_, std::move(buffer));
  }

  void AddUnit(int unit) {
    const bool sharded = ShardsParameters(layout_.units[unit], options_);
    const Tier working_tier = sharded ? options_.placement.parameters : Tier::device;
    const int working = Add(StateKind::working, unit, !sharded, working_tier);
    if (!options_.training) return;
    const bool whole = options_.stage == 0;
    const Tier tier = offloaded_[unit] ? options_.placement.optimizer : Tier::device;
    const int master = Add(StateKind::master, unit, whole, tier);
    if (DTypeOfState(StateKind::master, options_.compute) == options_.compute && tier == working_tier &&
        tier != Tier::file) {
      plan_.buffers[master].alias_of = working;
      plan_.buffers[master].bytes = 0;
    }
    if (options_.moments >= 1) Add(StateKind::moment1, unit, whole, tier);
    if (options_.moments >= 2) Add(StateKind::moment2, unit, whole, tier);
  }

  void AddGradient(int slot) {
    const int unit = layout_.slots[slot].unit;
    const bool shared = layout_.segments.back().tied && unit == 0;
    const std::string suffix = shared ? "." + layout_.segments[layout_.slots[slot].segment].name : "";
    // One that comes from another stage is only added: as much of it is kept as this rank steps.
    const bool whole = parts_.slots[slot] ? KeepsWholeGradient(options_) : options_.stage == 0;
    const Tier tier = offloaded_[unit] && !whole ? options_.placement.gradients : Tier::device;
    plan_.buffers[Add(StateKind::gradient, unit, whole, tier, suffix)].slot = slot;
  }

  const ModelLayout& layout_;
  Plan& plan_;
  const PlanOptions& options_;
  const StageParts parts_;
  const std::vector<bool> offloaded_;
};

}  // namespace

std::vector<bool> OffloadedUnits(const ModelLayout& layout, const PlanOptions& options) {
  std::vector<bool> offloaded(layout.units.size(), false);
  if (options.placement.optimizer == Tier::device || !options.training) return offloaded;
  const std::vector<bool> here = PartsOf(layout, options).units;
  double left = 0;
  for (size_t u = 0; u < layout.units.size(); ++u)
    if (here[u]) left += static_cast<double>(layout.units[u].numel);
  left *= options.placement.optimizer_ratio;
  for (size_t u = layout.units.size(); u-- > 0;) {
    const double numel = static_cast<double>(layout.units[u].numel);
    if (!here[u] || numel > left) continue;
    offloaded[u] = true;
    left -= numel;
  }
  return offloaded;
}

void PlaceState(const ModelLayout& layout, Plan& plan) {
  Residency(layout, plan).AddBuffers();
  const ResidentIndex resident = IndexResident(layout, plan);
  for (Action& action : plan.actions) {
    const std::vector<int>& units = layout.units_of[action.segment];
    const std::vector<int>& slots = layout.slots_of[action.segment];
    for (int i = 0; i < static_cast<int>(units.size()); ++i) {
      if (ReadsParameters(action) && !ShardsParameters(layout.units[units[i]], plan.options))
        action.uses.push_back({Operand::params, i, resident.working[units[i]], Access::read});
      if (action.kind == ActionKind::backward_weight && !ReducesEachMicroBatch(plan.options)) {
        action.accumulate = action.micro_batch > 0;
        action.uses.push_back(
            {Operand::grads, i, resident.gradient[slots[i]], action.accumulate ? Access::update : Access::write});
      }
    }
  }
}

}  // namespace ds
