#include <algorithm>

#include "runtime/plan/checks.h"
#include "runtime/plan/memory_map.h"

namespace ds {
namespace {

class OrderChecker {
 public:
  OrderChecker(const ModelLayout& layout, const Plan& plan, Faults& faults)
      : layout_(layout), plan_(plan), faults_(faults), memory_(plan), clocks_(plan.actions.size()) {}

  void Run() {
    for (size_t a = 0; a < plan_.actions.size(); ++a) {
      StartClock(a);
      for (const Use& use : plan_.actions[a].uses) CheckUse(a, use);
      memory_.Record(static_cast<int>(a));
      clocks_[a][static_cast<int>(plan_.actions[a].stream)] = static_cast<int>(a);
      last_[static_cast<int>(plan_.actions[a].stream)] = static_cast<int>(a);
    }
  }

 private:
  using Clock = OfStreams;  // of each stream: the last action that is done

  void StartClock(size_t a) {
    const Action& action = plan_.actions[a];
    Clock& clock = clocks_[a];
    clock = NoActions();
    auto merge = [&](int done) {
      for (int s = 0; s < kStreams; ++s) clock[s] = std::max(clock[s], clocks_[done][s]);
    };
    if (const int before = last_[static_cast<int>(action.stream)]; before >= 0) merge(before);
    for (int wait : action.waits) merge(wait);
  }

  void CheckUse(size_t a, const Use& use) {
    const Buffer& buffer = plan_.buffers[use.buffer];
    Clock after = NoActions();
    const Action& action = plan_.actions[a];
    memory_.Conflicts(action, use, after);
    for (int s = 0; s < kStreams; ++s) {
      if (after[s] <= clocks_[a][s]) continue;
      faults_.At(a, std::string(use.access == Access::read ? "reads " : "writes ") + buffer.name +
                        " without waiting for " + Describe(layout_, plan_, after[s]) + ", which uses the same memory");
    }
    if (buffer.kind == BufferKind::resident || use.access == Access::write) return;
    int owner = use.buffer;
    memory_.Visit(use.buffer, action.bucket, [&](const MemoryMap::Run& run) {
      if (run.owner != use.buffer) owner = run.owner;
    });
    if (owner == use.buffer) return;
    faults_.At(a, "reads " + buffer.name + ", " +
                      (owner < 0 ? "which nothing wrote"
                                 : "whose memory is not its own here: it holds " + plan_.buffers[owner].name));
  }

  const ModelLayout& layout_;
  const Plan& plan_;
  Faults& faults_;
  MemoryMap memory_;
  std::vector<Clock> clocks_;
  Clock last_ = NoActions();
};

}  // namespace

void CheckOrder(const ModelLayout& layout, const Plan& plan, Faults& faults) {
  OrderChecker(layout, plan, faults).Run();
}

}  // namespace ds
