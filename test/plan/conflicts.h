// The slow twin of the planner's memory map: every pair of uses compared byte for byte, order by full reachability.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace ds::test {

/// Of two buffers that actions of these buckets (-1: of all) use.
inline bool SharesMemory(const Plan& plan, int a, int a_bucket, int b, int b_bucket) {
  const Buffer &x = plan.buffers[static_cast<size_t>(a)], &y = plan.buffers[static_cast<size_t>(b)];
  if ((x.kind == BufferKind::resident) != (y.kind == BufferKind::resident)) return false;
  if (x.kind == BufferKind::resident) {
    const bool apart = a_bucket >= 0 && b_bucket >= 0 && a_bucket != b_bucket;
    return !apart && (x.alias_of >= 0 ? x.alias_of : a) == (y.alias_of >= 0 ? y.alias_of : b);
  }
  return x.tier == y.tier && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
}

/// Whether the two actions use common memory and one of them writes it. Squares of several units add to sums of their
/// own.
inline bool Conflict(const Plan& plan, const Action& a, const Action& b) {
  const bool apart = a.kind == ActionKind::squares && b.kind == ActionKind::squares && a.unit != b.unit;
  for (const Use& x : a.uses)
    for (const Use& y : b.uses)
      if (!(apart && x.operand == Operand::sums) && (x.access != Access::read || y.access != Access::read) &&
          SharesMemory(plan, x.buffer, a.bucket, y.buffer, b.bucket))
        return true;
  return false;
}

/// reach[i][j]: action j is done before action i starts, by streams and waits.
inline std::vector<std::vector<bool>> Reachability(const Plan& plan) {
  const size_t n = plan.actions.size();
  std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
  std::vector<int> last(kStreams, -1);
  for (size_t i = 0; i < n; ++i) {
    auto add = [&](int j) {
      if (j < 0) return;
      for (size_t k = 0; k < n; ++k) reach[i][k] = reach[i][k] || reach[static_cast<size_t>(j)][k];
      reach[i][static_cast<size_t>(j)] = true;
    };
    int& before = last[static_cast<size_t>(plan.actions[i].stream)];
    add(before);
    for (int wait : plan.actions[i].waits) add(wait);
    before = static_cast<int>(i);
  }
  return reach;
}

/// The last, or first, action that uses each buffer.
inline std::vector<int> LastUses(const Plan& plan) {
  std::vector<int> last(plan.buffers.size(), -1);
  for (size_t a = 0; a < plan.actions.size(); ++a)
    for (const Use& use : plan.actions[a].uses) last[static_cast<size_t>(use.buffer)] = static_cast<int>(a);
  return last;
}
inline std::vector<int> FirstUses(const Plan& plan) {
  std::vector<int> first(plan.buffers.size(), -1);
  for (size_t a = plan.actions.size(); a-- > 0;)
    for (const Use& use : plan.actions[a].uses) first[static_cast<size_t>(use.buffer)] = static_cast<int>(a);
  return first;
}

/// `plan` with its actions in another order: `order[k]` is the old index of the new action k. Waits follow their
/// actions; those on actions that are gone are gone.
inline Plan Reordered(const Plan& plan, const std::vector<size_t>& order) {
  std::vector<int> at(plan.actions.size(), -1);
  for (size_t k = 0; k < order.size(); ++k) at[order[k]] = static_cast<int>(k);
  Plan result = plan;
  result.actions.clear();
  for (size_t old : order) {
    Action action = plan.actions[old];
    std::vector<int> waits;
    for (int wait : action.waits)
      if (at[static_cast<size_t>(wait)] >= 0) waits.push_back(at[static_cast<size_t>(wait)]);
    action.waits = waits;
    result.actions.push_back(std::move(action));
  }
  return result;
}

}  // namespace ds::test
