// The end of a step: tied gradients summed, the norm of all, each unit stepped, and what other ranks stepped gathered.
#include "runtime/plan/passes.h"

namespace ds {

void StepOptimizer(const ModelLayout& layout, Plan& plan) {
  if (!plan.options.training) return;
  const ResidentIndex resident = IndexResident(layout, plan);
  const int units = static_cast<int>(layout.units.size());
  std::vector<int> first(units, -1);  // of a unit: its first gradient slot
  for (int s = 0; s < static_cast<int>(layout.slots.size()); ++s) {
    const int unit = layout.slots[s].unit;
    if (first[unit] < 0) {
      first[unit] = s;
      continue;
    }
    Action sum = UnitAction(ActionKind::sum_tied, StreamKind::compute, unit);
    sum.uses = {{Operand::shard, first[unit], resident.gradient[first[unit]], Access::update},
                {Operand::shard, s, resident.gradient[s], Access::read}};
    plan.actions.push_back(std::move(sum));
  }

  Action norm;
  norm.kind = ActionKind::norm;
  for (int u = 0; u < units; ++u)
    norm.uses.push_back({Operand::shard, first[u], resident.gradient[first[u]], Access::read});
  norm.bytes = static_cast<int64_t>(sizeof(double)) * (units + kNormExtras) * (layout.ranks - 1);
  plan.actions.push_back(std::move(norm));

  for (int u = 0; u < units; ++u) {
    Action step = UnitAction(ActionKind::optimizer_step, StreamKind::compute, u);
    step.uses = {{Operand::shard, first[u], resident.gradient[first[u]], Access::read}};
    auto use = [&](StateKind state, int buffer, Access access) {
      if (buffer >= 0) step.uses.push_back({Operand::state, static_cast<int>(state), buffer, access});
    };
    use(StateKind::working, resident.working[u], Access::write);
    use(StateKind::master, resident.master[u], Access::update);
    use(StateKind::moment1, resident.moment1[u], Access::update);
    use(StateKind::moment2, resident.moment2[u], Access::update);
    plan.actions.push_back(std::move(step));
    const Buffer& working = plan.buffers[resident.working[u]];
    if (!working.whole || plan.buffers[resident.master[u]].whole) continue;
    for (int b = 0; b < static_cast<int>(layout.units[u].buckets.size()); ++b)
      plan.actions.push_back(GatherBucket(layout, plan, u, b, resident.working[u], resident.working[u]));
  }
}

}  // namespace ds
