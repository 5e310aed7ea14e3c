#include "runtime/plan/lifetime.h"

namespace ds {

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
  std::vector<int> next_backward(n + 1, n - 1);  // of a position: the next BackwardWeight at or after it
  for (int a = n; a-- > 0;)
    next_backward[a] = plan.actions[a].kind == ActionKind::backward_weight ? a : next_backward[a + 1];
  for (Lifetime& life : lifetimes)
    if (life.last >= 0 && plan.actions[life.last].stream != StreamKind::compute) life.last = next_backward[life.last];
  return lifetimes;
}

}  // namespace ds
