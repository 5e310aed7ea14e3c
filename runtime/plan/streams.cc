// Waits and signals: the fewest that order every pair of conflicting uses on different streams.
//
// Each action carries a clock: of every stream, the last action known to be done when it ends. A wait that the action's
// own stream, or another of its waits, implies is left out.
#include <algorithm>

#include "runtime/plan/memory_map.h"
#include "runtime/plan/passes.h"

namespace ds {
namespace {

using Clock = OfStreams;

void Merge(Clock& clock, const Clock& other) {
  for (int s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], other[s]);
}

}  // namespace

void OrderStreams(Plan& plan) {
  MemoryMap memory(plan);
  std::vector<Clock> clocks(plan.actions.size());
  OfStreams last = NoActions();  // of a stream: its last action so far
  for (int i = 0; i < static_cast<int>(plan.actions.size()); ++i) {
    Action& action = plan.actions[i];
    const int stream = static_cast<int>(action.stream);
    Clock after = NoActions();
    for (const Use& use : action.uses) memory.Conflicts(action, use, after);
    memory.Record(i);

    Clock clock = NoActions();
    if (last[stream] >= 0) clock = clocks[last[stream]];
    std::sort(after.begin(), after.end(), std::greater<>());  // the latest first: it may imply the others
    action.waits.clear();
    for (int wanted : after) {
      if (wanted < 0 || clock[static_cast<int>(plan.actions[wanted].stream)] >= wanted) continue;
      action.waits.push_back(wanted);
      plan.actions[wanted].signals = true;
      Merge(clock, clocks[wanted]);
    }
    std::reverse(action.waits.begin(), action.waits.end());
    clock[stream] = i;
    clocks[i] = clock;
    last[stream] = i;
  }
}

}  // namespace ds
