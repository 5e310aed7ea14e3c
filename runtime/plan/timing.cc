#include "runtime/plan/timing.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>

#include "runtime/plan/passes.h"

namespace ds {
namespace {

class Timing {
 public:
  Timing(const ModelLayout& layout, const std::vector<const Plan*>& plans, const Machine& machine)
      : layout_(layout), plans_(plans), machine_(machine), timings_(plans.size()), walks_(plans.size()) {
    for (size_t p = 0; p < plans.size(); ++p) {
      timings_[p].begin.resize(plans[p]->actions.size());
      timings_[p].end.resize(plans[p]->actions.size());
      of_stage_[plans[p]->options.pipeline.stage] = p;
    }
  }

  /// Lists have one order, that of all stages, so each can be walked until it meets what another has not reached.
  std::vector<PlanTiming> Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t p = 0; p < plans_.size(); ++p)
        while (walks_[p].at < plans_[p]->actions.size() && Step(p)) moved = true;
    }
    for (size_t p = 0; p < plans_.size(); ++p)
      if (walks_[p].at < plans_[p]->actions.size()) throw std::logic_error("TimeTogether: plans that do not meet");
    return std::move(timings_);
  }

 private:
  struct Walk {
    size_t at = 0;                        // the action that comes next
    std::array<double, kStreams> free{};  // when a stream's last action so far ends
  };
  /// What a message carries, and its stages: the same at both ends.
  using Message = std::tuple<int, int, int, int, bool, int, int>;

  Message MessageOf(const Plan& plan, const Action& action) const {
    int from = plan.options.pipeline.stage, to = action.peer;
    if (action.kind == ActionKind::receive) std::swap(from, to);
    return {action.segment, action.micro_batch, action.slot, action.bucket, action.gradient, from, to};
  }

  double Ready(size_t p) const {
    const Action& action = plans_[p]->actions[walks_[p].at];
    double ready = walks_[p].free[static_cast<size_t>(action.stream)];
    for (int wait : action.waits) ready = std::max(ready, timings_[p].end[static_cast<size_t>(wait)]);
    return ready;
  }

  void Do(size_t p, double begin) {
    const Action& action = plans_[p]->actions[walks_[p].at];
    const double seconds = ActionSeconds(layout_, *plans_[p], action, machine_);
    if (action.stream == StreamKind::compute && action.kind != ActionKind::norm) timings_[p].compute_seconds += seconds;
    timings_[p].begin[walks_[p].at] = begin;
    timings_[p].end[walks_[p].at] = walks_[p].free[static_cast<size_t>(action.stream)] = begin + seconds;
    ++walks_[p].at;
  }

  /// Does the next action of a list, if all that it needs is known.
  bool Step(size_t p) {
    const Action& action = plans_[p]->actions[walks_[p].at];
    if (action.kind == ActionKind::norm) return Norm();
    const double ready = Ready(p);
    const auto peer = IsMessage(action) ? of_stage_.find(action.peer) : of_stage_.end();
    if (peer == of_stage_.end()) {
      Do(p, ready);
      return true;
    }
    const size_t other = peer->second;
    if (walks_[other].at == plans_[other]->actions.size()) return false;
    const Action& theirs = plans_[other]->actions[walks_[other].at];
    if (!IsMessage(theirs) || MessageOf(*plans_[other], theirs) != MessageOf(*plans_[p], action)) return false;
    const double begin = std::max(ready, Ready(other));
    Do(p, begin);
    Do(other, begin);
    return true;
  }

  bool Norm() {
    double begin = 0;
    for (size_t p = 0; p < plans_.size(); ++p) {
      const bool there =
          walks_[p].at < plans_[p]->actions.size() && plans_[p]->actions[walks_[p].at].kind == ActionKind::norm;
      if (!there) return false;
      begin = std::max(begin, Ready(p));
    }
    for (size_t p = 0; p < plans_.size(); ++p) Do(p, begin);
    return true;
  }

  const ModelLayout& layout_;
  const std::vector<const Plan*>& plans_;
  const Machine& machine_;
  std::vector<PlanTiming> timings_;
  std::vector<Walk> walks_;
  std::map<int, size_t> of_stage_;  // the plan
};

}  // namespace

std::vector<PlanTiming> TimeTogether(const ModelLayout& layout, const std::vector<const Plan*>& plans,
                                     const Machine& machine) {
  return Timing(layout, plans, machine).Run();
}

}  // namespace ds
