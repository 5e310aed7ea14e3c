// Reduces each bucket of a gradient as soon as it is complete, beside the rest of the backward.
#include <algorithm>

#include "runtime/plan/passes.h"

namespace ds {
namespace {

class Reducer {
 public:
  Reducer(const ModelLayout& layout, Plan& plan)
      : layout_(layout),
        plan_(plan),
        resident_(IndexResident(layout, plan)),
        each_(ReducesEachMicroBatch(plan.options)) {}

  void Run() {
    std::vector<Action> before = std::move(plan_.actions);
    plan_.actions.clear();
    for (Action& action : before) {
      if (action.kind != ActionKind::backward_weight) {
        plan_.actions.push_back(std::move(action));
        continue;
      }
      const std::vector<int>& slots = layout_.slots_of[action.segment];
      std::vector<int> sources;
      for (size_t i = 0; i < slots.size(); ++i) sources.push_back(Source(action, static_cast<int>(i), slots[i]));
      const int micro_batch = action.micro_batch;
      plan_.actions.push_back(std::move(action));
      if (!each_ && micro_batch + 1 < plan_.options.micro_batches) continue;
      for (size_t i = 0; i < slots.size(); ++i) ReduceSlot(slots[i], sources[i], micro_batch);
    }
  }

 private:
  int64_t ElementBytes() const {
    return static_cast<int64_t>(SizeOf(DTypeOfState(StateKind::gradient, plan_.options.compute)));
  }

  /// The whole gradient that `action` writes.
  int Source(Action& action, int index, int slot) {
    if (!each_) return resident_.gradient[slot];
    const ParamUnit& unit = layout_.units[layout_.slots[slot].unit];
    Buffer buffer;
    buffer.name = "grad." + unit.name + (unit.name == "embedding.tokens" ? "." + SegmentOf(slot) : "") + ".mb" +
                  std::to_string(action.micro_batch);
    buffer.kind = BufferKind::gradient;
    buffer.numel = unit.numel;
    buffer.bytes = unit.numel * ElementBytes();
    buffer.state = StateKind::gradient;
    buffer.unit = layout_.slots[slot].unit;
    buffer.slot = slot;
    buffer.whole = true;
    const int id = AddBuffer(plan_, std::move(buffer));
    action.uses.push_back({Operand::grads, index, id, Access::write});
    return id;
  }

  std::string SegmentOf(int slot) const { return layout_.segments[layout_.slots[slot].segment].name; }

  void ReduceSlot(int slot, int source, int micro_batch) {
    const int unit = layout_.slots[slot].unit;
    const int destination = resident_.gradient[slot];
    const bool last = micro_batch + 1 == plan_.options.micro_batches;
    const int buckets = static_cast<int>(layout_.units[unit].buckets.size());
    for (int b = 0; b < buckets; ++b) {
      Action action = UnitAction(ActionKind::reduce, StreamKind::reduce, unit, b);
      action.segment = layout_.slots[slot].segment;
      action.slot = slot;
      action.micro_batch = micro_batch;
      action.accumulate = each_ && micro_batch > 0;
      action.all = plan_.options.stage == 0 && last;
      const int64_t bytes = layout_.units[unit].buckets[b].numel() * ElementBytes();
      action.bytes = RingBytes(bytes, layout_.ranks) * (action.all ? 2 : 1);
      action.uses = {{Operand::whole, 0, source, Access::read},
                     {Operand::shard, 0, destination, action.accumulate ? Access::update : Access::write}};
      const bool direct = !action.accumulate && !plan_.buffers[destination].whole;
      UseWorkspace(action, ReduceWorkspaceOf(bytes, layout_.ranks, direct, plan_.options.device).bytes());
      plan_.actions.push_back(std::move(action));
    }
  }

  /// One workspace a micro-batch: reductions follow one another on their stream, so it serves them all.
  void UseWorkspace(Action& action, int64_t bytes) {
    if (bytes == 0) return;
    if (workspace_of_ != action.micro_batch) {
      Buffer buffer;
      buffer.name = "workspace.reduce.mb" + std::to_string(action.micro_batch);
      buffer.kind = BufferKind::workspace;
      workspace_ = AddBuffer(plan_, std::move(buffer));
      workspace_of_ = action.micro_batch;
    }
    plan_.buffers[workspace_].bytes = std::max(plan_.buffers[workspace_].bytes, bytes);
    action.uses.push_back({Operand::workspace, 0, workspace_, Access::write});
  }

  const ModelLayout& layout_;
  Plan& plan_;
  const ResidentIndex resident_;
  const bool each_;
  int workspace_ = -1, workspace_of_ = -1;
};

}  // namespace

void ReduceGradients(const ModelLayout& layout, Plan& plan) {
  if (plan.options.training) Reducer(layout, plan).Run();
}

}  // namespace ds
