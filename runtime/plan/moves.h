// What the passes that move buffers between tiers share. Private to runtime/plan.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/passes.h"

namespace ds {

/// The stream that moves from one tier to a neighbouring one.
inline StreamKind StreamBetween(Tier from, Tier to) {
  if (from == Tier::device) return StreamKind::store;
  if (to == Tier::device) return StreamKind::fetch;
  return from == Tier::file ? StreamKind::read : StreamKind::write;
}

/// The tier next to `from` on the way to `to`: between device and file lies the host.
inline Tier Towards(Tier from, Tier to) {
  return from != Tier::host && to != Tier::host && from != to ? Tier::host : to;
}

/// Moves buffer `from` to buffer `to`, which are on neighbouring tiers.
inline Action MoveBetween(const Plan& plan, int from, int to, int64_t bytes) {
  const Tier source = plan.buffers[from].tier, target = plan.buffers[to].tier;
  Action move;
  move.kind = target < source ? ActionKind::fetch : ActionKind::store;
  move.stream = StreamBetween(source, target);
  move.uses = {{Operand::from, 0, from, Access::read}, {Operand::to, 0, to, Access::write}};
  move.bytes = bytes;
  return move;
}

/// Actions to be put around those of a plan.
class Insertions {
 public:
  explicit Insertions(size_t actions) : before_(actions), after_(actions) {}

  void Before(size_t action, Action added) { before_[action].push_back(std::move(added)); }
  void After(size_t action, Action added) { after_[action].push_back(std::move(added)); }

  void Weave(Plan& plan) {
    std::vector<Action> actions;
    auto append = [&](std::vector<Action>& some) {
      for (Action& action : some) actions.push_back(std::move(action));
    };
    for (size_t a = 0; a < plan.actions.size(); ++a) {
      append(before_[a]);
      actions.push_back(std::move(plan.actions[a]));
      append(after_[a]);
    }
    plan.actions = std::move(actions);
  }

 private:
  std::vector<std::vector<Action>> before_, after_;
};

}  // namespace ds
