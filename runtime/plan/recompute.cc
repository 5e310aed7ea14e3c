// Drops what chosen segments save in the forward and computes it again before their backward: a step then keeps the
// inputs of those segments alone. The saved tensors of forward and Recompute are two buffers, alive at two times.
#include "runtime/plan/passes.h"

namespace ds {
namespace {

/// Recompute for the backward whose first action is `backward`; writes `saved`.
Action RecomputeFor(const Action& backward, const SegmentSpec& segment, int saved) {
  Action action;
  action.kind = ActionKind::recompute;
  action.segment = backward.segment;
  action.micro_batch = backward.micro_batch;
  action.flops = segment.recompute_flops;
  action.uses = {*backward.Find(Operand::input), {Operand::saved, 0, saved, Access::write}};
  return action;
}

}  // namespace

void AddRecompute(const ModelLayout& layout, Plan& plan) {
  if (plan.options.recompute == RecomputeMode::none || !plan.options.training) return;
  std::vector<Action> actions;
  std::vector<int> again(plan.buffers.size(), -1);  // of a forward's saved buffer: that of Recompute
  for (Action& action : plan.actions) {
    const bool backward = action.kind == ActionKind::backward_input || action.kind == ActionKind::backward_weight;
    const SegmentSpec& segment = layout.segments[action.segment];
    if (backward && Recomputes(segment, plan.options)) {
      for (Use& use : action.uses) {
        if (use.operand != Operand::saved) continue;
        const int saved = use.buffer;
        if (again[saved] < 0) {
          Buffer copy = plan.buffers[saved];
          copy.name = "re" + copy.name;
          again[saved] = AddBuffer(plan, std::move(copy));
          actions.push_back(RecomputeFor(action, segment, again[saved]));
        }
        use.buffer = again[saved];
      }
    }
    actions.push_back(std::move(action));
  }
  plan.actions = std::move(actions);
}

}  // namespace ds
