#include "runtime/plan/lifetime.h"

#include <algorithm>

namespace ds {
namespace {

constexpr int kOverlappedPasses = 3;  // Recompute, BackwardInput and BackwardWeight of one segment

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
  std::vector<int> passes;  // actions of segments on the compute stream
  for (int a = 0; a < n; ++a)
    if (plan.actions[a].kind <= ActionKind::backward_weight) passes.push_back(a);
  for (Lifetime& life : lifetimes) {
    if (life.last < 0 || plan.actions[life.last].stream == StreamKind::compute) continue;
    const auto next = std::upper_bound(passes.begin(), passes.end(), life.last);
    const auto end = next + std::min<std::ptrdiff_t>(kOverlappedPasses, passes.end() - next);
    life.last = end == passes.begin() ? life.last : std::max(life.last, *(end - 1));
  }
  return lifetimes;
}

}  // namespace ds
