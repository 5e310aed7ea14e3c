// A tied token table whose embedding and head are on two stages: each sends the other what its own ranks' gradient came
// to, once it is reduced, so that both can add the two in one order and step alike.
//
// All of it stands behind the backward, in the order of buckets on both sides: there no stage waits for it.
#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {

void ExchangeTied(const ModelLayout& layout, Plan& plan) {
  if (plan.options.pipeline.stages == 1 || !plan.options.training || plan.options.updates_only) return;
  const StageParts parts = PartsOf(layout, plan.options);
  const ResidentIndex resident = IndexResident(layout, plan);
  std::vector<int> tied;  // units that another stage has too
  for (size_t slot = 0; slot < layout.slots.size(); ++slot)
    if (parts.slots_abroad[slot]) tied.push_back(layout.slots[slot].unit);
  for (int unit : tied) {
    for (int b = 0; b < static_cast<int>(layout.units[unit].buckets.size()); ++b) {
      for (size_t slot = 0; slot < layout.slots.size(); ++slot) {
        if (layout.slots[slot].unit != unit) continue;
        const bool sends = parts.slots[slot];
        const int buffer = resident.gradient[slot];
        Action message = UnitAction(sends ? ActionKind::send : ActionKind::receive, StreamKind::tied, unit, b);
        message.segment = layout.slots[slot].segment;
        message.slot = static_cast<int>(slot);
        message.state = StateKind::gradient;
        message.peer = OtherStageOf(layout, parts, plan.options, static_cast<int>(slot));
        message.bytes = TiedMessageBytes(layout, plan.options, unit, b);
        message.uses = {{sends ? Operand::from : Operand::to, 0, buffer, sends ? Access::read : Access::write}};
        plan.actions.push_back(std::move(message));
      }
    }
  }
}

}  // namespace ds
