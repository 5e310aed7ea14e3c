#include "runtime/plan/lifetime.h"

#include <algorithm>

namespace ds {
namespace {

constexpr int kOverlappedPasses = 3;   // Recompute, BackwardInput and BackwardWeight of one segment
constexpr int kOverlappedUpdates = 1;  // pending ones: the host steps one bucket while another's moves end

/// The so many-th of the ascending `actions` behind `last`, or the last that there is; none: `last`.
int Behind(const std::vector<int>& actions, int last, int many) {
  const auto next = std::upper_bound(actions.begin(), actions.end(), last);
  const auto end = next + std::min<std::ptrdiff_t>(many, actions.end() - next);
  return end == actions.begin() ? last : std::max(last, *(end - 1));
}

}  // namespace

std::vector<Lifetime> Lifetimes(const Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.buffers.size());
  const int n = static_cast<int>(plan.actions.size());
  for (int a = 0; a < n; ++a) {
    for (const Use& use : plan.actions[a].uses) {
      Lifetime& life = lifetimes[use.buffer];
      if (life.first < 0) life.first = a;
      life.last = a;
    }
  }
  std::vector<int> passes, updates;  // actions of segments on the compute stream; pending ones of the host's
  for (int a = 0; a < n; ++a) {
    if (plan.actions[a].kind <= ActionKind::backward_weight) passes.push_back(a);
    if (plan.actions[a].pending && plan.actions[a].stream == StreamKind::host) updates.push_back(a);
  }
  for (int a = 0; a < n; ++a) {
    if (!plan.actions[a].beside_last) continue;
    const auto next = std::upper_bound(passes.begin(), passes.end(), a);
    if (next == passes.begin()) continue;
    for (const Use& use : plan.actions[a].uses)
      lifetimes[use.buffer].first = std::min(lifetimes[use.buffer].first, *(next - 1));
  }
  for (Lifetime& life : lifetimes) {
    if (life.first >= 0 && plan.actions[life.first].kind == ActionKind::receive) {
      const auto next = std::lower_bound(passes.begin(), passes.end(), life.first);
      const auto begin = next - std::min<std::ptrdiff_t>(kOverlappedPasses, next - passes.begin());
      if (begin != next) life.first = *begin;
    }
    if (life.last < 0 || plan.actions[life.last].stream == StreamKind::compute) continue;
    life.last = plan.actions[life.last].pending ? Behind(updates, life.last, kOverlappedUpdates)
                                                : Behind(passes, life.last, kOverlappedPasses);
  }
  return lifetimes;
}

}  // namespace ds
