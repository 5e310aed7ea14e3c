// The end of a step: tied gradients summed, the norm of all, each unit stepped, and what other ranks stepped gathered.
//
// Units whose optimizer state is below the device go a bucket at a time, on the host stream, beside the backward: as
// soon as a bucket's gradient is reduced its two slots are summed, where there are two, and its squares are added up;
// it is stepped then too (Placement::steps_early), or in the next step's plan, before the first reader of its unit's
// parameters (Action::pending): in the order of the forward, so that a segment waits for its own units alone and the
// rest runs beside it.
#include <algorithm>
#include <iterator>
#include <map>

#include "runtime/plan/passes.h"
#include "runtime/plan/stages.h"

namespace ds {
namespace {

class Steps {
 public:
  Steps(const ModelLayout& layout, Plan& plan)
      : layout_(layout),
        plan_(plan),
        resident_(IndexResident(layout, plan)),
        parts_(PartsOf(layout, plan.options)),
        offloaded_(OffloadedUnits(layout, plan.options)),
        slots_(layout.units.size()) {
    for (int s = 0; s < static_cast<int>(layout.slots.size()); ++s) slots_[layout.slots[s].unit].push_back(s);
  }

  void Run() {
    if (DefersUpdates(plan_.options)) AddPendingUpdates();
    if (plan_.options.updates_only) return;
    if (std::find(offloaded_.begin(), offloaded_.end(), true) != offloaded_.end()) AddHostWork();
    const int units = static_cast<int>(layout_.units.size());
    for (int u = 0; u < units; ++u)
      if (parts_.units[u] && slots_[u].size() > 1 && !offloaded_[u]) plan_.actions.push_back(SumTied(u, -1));
    plan_.actions.push_back(Norm());
    for (int u = 0; u < units; ++u) {
      if (!parts_.units[u] || offloaded_[u]) continue;
      if (plan_.buffers[resident_.working[u]].tier == Tier::device) {
        plan_.actions.push_back(Step(u, -1));
        for (int b = 0; b < Buckets(u); ++b) AddGather(u, b, plan_.actions);
      } else {
        for (int b = 0; b < Buckets(u); ++b) {
          plan_.actions.push_back(Step(u, b));
          AddGather(u, b, plan_.actions);
        }
      }
    }
    std::move(late_.begin(), late_.end(), std::back_inserter(plan_.actions));
  }

 private:
  int Buckets(int unit) const { return static_cast<int>(layout_.units[unit].buckets.size()); }
  int Gradient(int unit) const { return resident_.gradient[slots_[unit].front()]; }
  bool Pending(int unit) const { return offloaded_[unit] && DefersUpdates(plan_.options); }
  StreamKind StreamOf(int unit) const { return offloaded_[unit] ? StreamKind::host : StreamKind::compute; }

  /// Puts what the step before left of each unit in front of the first action that reads its working copy; without any
  /// (PlanOptions::updates_only) into the order of the model.
  void AddPendingUpdates() {
    std::vector<Action> actions;
    std::vector<bool> waits = offloaded_;
    const auto update = [&](int unit) {
      if (!waits[unit]) return;
      waits[unit] = false;
      for (int b = 0; b < Buckets(unit); ++b) {
        actions.push_back(Step(unit, b));
        AddGather(unit, b, actions);
      }
    };
    for (Action& action : plan_.actions) {
      for (const Use& use : action.uses) {
        const Buffer& buffer = plan_.buffers[use.buffer];
        if (buffer.kind == BufferKind::resident && buffer.state == StateKind::working) update(buffer.unit);
      }
      actions.push_back(std::move(action));
    }
    for (int u = 0; u < static_cast<int>(layout_.units.size()); ++u) update(u);
    plan_.actions = std::move(actions);
  }

  /// Puts what the host does of each bucket behind the last of the actions that complete its gradient: a Reduce, or,
  /// where a slot of it comes from another stage, the Receive of that.
  void AddHostWork() {
    Buffer sums;
    sums.name = "sums";
    sums.kind = BufferKind::sums;
    sums.tier = Tier::host;
    sums.bytes = static_cast<int64_t>(layout_.units.size() * sizeof(double));
    sums_ = AddBuffer(plan_, std::move(sums));

    std::map<std::pair<int, int>, size_t> last;  // of a unit's bucket: what completes its gradient
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      const Action& action = plan_.actions[a];
      const bool reduces = action.kind == ActionKind::reduce && action.micro_batch + 1 == plan_.options.micro_batches;
      const bool comes = action.kind == ActionKind::receive && action.state == StateKind::gradient;
      if ((reduces || comes) && offloaded_[action.unit]) last[{action.unit, action.bucket}] = a;
    }
    std::vector<Action> actions;
    bool first = true;  // the first Squares sets the sums to zero
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      const std::pair bucket(plan_.actions[a].unit, plan_.actions[a].bucket);
      const bool completes = last.count(bucket) && last[bucket] == a;
      actions.push_back(std::move(plan_.actions[a]));
      if (!completes) continue;
      if (slots_[bucket.first].size() > 1) actions.push_back(SumTied(bucket.first, bucket.second));
      Action squares = UnitAction(ActionKind::squares, StreamKind::host, bucket.first, bucket.second);
      squares.uses = {{Operand::shard, slots_[bucket.first].front(), Gradient(bucket.first), Access::read},
                      {Operand::sums, 0, sums_, first ? Access::write : Access::update}};
      first = false;
      actions.push_back(std::move(squares));
      if (!plan_.options.placement.steps_early) continue;
      actions.push_back(Step(bucket.first, bucket.second));
      AddGather(bucket.first, bucket.second, late_);
    }
    plan_.actions = std::move(actions);
  }

  Action SumTied(int unit, int bucket) const {
    Action sum = UnitAction(ActionKind::sum_tied, StreamOf(unit), unit, bucket);
    for (int slot : slots_[unit])
      sum.uses.push_back(
          {Operand::shard, slot, resident_.gradient[slot], sum.uses.empty() ? Access::update : Access::read});
    return sum;
  }

  Action Norm() const {
    Action norm;
    norm.kind = ActionKind::norm;
    for (int u = 0; u < static_cast<int>(layout_.units.size()); ++u)
      if (parts_.owned[u] && !offloaded_[u])
        norm.uses.push_back({Operand::shard, slots_[u].front(), Gradient(u), Access::read});
    if (sums_ >= 0) norm.uses.push_back({Operand::sums, 0, sums_, Access::update});
    norm.bytes = static_cast<int64_t>(sizeof(double)) * (static_cast<int64_t>(layout_.units.size()) + kNormExtras) *
                 (plan_.options.world() - 1);
    return norm;
  }

  Action Step(int unit, int bucket) const {
    Action step = UnitAction(ActionKind::optimizer_step, StreamOf(unit), unit, bucket);
    step.pending = Pending(unit);
    step.uses = {{Operand::shard, slots_[unit].front(), Gradient(unit), Access::read}};
    auto use = [&](StateKind state, int buffer, Access access) {
      if (buffer >= 0) step.uses.push_back({Operand::state, static_cast<int>(state), buffer, access});
    };
    use(StateKind::working, resident_.working[unit], Access::write);
    use(StateKind::master, resident_.master[unit], Access::update);
    use(StateKind::moment1, resident_.moment1[unit], Access::update);
    use(StateKind::moment2, resident_.moment2[unit], Access::update);
    return step;
  }

  /// Where ranks hold a unit's working copy whole and step a piece of it each.
  void AddGather(int unit, int bucket, std::vector<Action>& actions) const {
    const int working = resident_.working[unit];
    if (!plan_.buffers[working].whole || plan_.buffers[resident_.master[unit]].whole) return;
    actions.push_back(GatherBucket(layout_, plan_, unit, bucket, working, working));
    actions.back().pending = Pending(unit);
  }

  const ModelLayout& layout_;
  Plan& plan_;
  const ResidentIndex resident_;
  const StageParts parts_;
  const std::vector<bool> offloaded_;
  std::vector<std::vector<int>> slots_;  // of a unit: its gradients'
  int sums_ = -1;
  std::vector<Action> late_;  // at the end: who enqueues the backward on a GPU must not wait for the host's steps
};

}  // namespace

void StepOptimizer(const ModelLayout& layout, Plan& plan) {
  if (plan.options.training) Steps(layout, plan).Run();
}

}  // namespace ds
