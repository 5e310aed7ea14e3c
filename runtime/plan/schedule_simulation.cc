// Runs a schedule in time.
#include <algorithm>

#include "runtime/plan/schedule.h"

namespace ds {
namespace {

constexpr double kNever = -1;

class Simulation {
 public:
  Simulation(const ScheduleShape& shape, const std::vector<std::vector<Work>>& work, const std::vector<WorkCost>& costs,
             double message)
      : shape_(shape),
        work_(work),
        costs_(costs),
        message_(message),
        next_(work.size(), 0),
        free_(work.size(), 0),
        forward_done_(static_cast<size_t>(shape.chunks() * shape.micro_batches), kNever),
        input_done_(forward_done_),
        live_(work.size(), 0) {
    result_.stages.resize(work.size());
  }

  SimulatedSchedule Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < work_.size(); ++stage)
        while (Advance(static_cast<int>(stage))) moved = true;
    }
    for (size_t stage = 0; stage < work_.size(); ++stage) {
      if (next_[stage] == work_[stage].size()) continue;
      result_.stuck += (result_.stuck.empty() ? "stage " : ", stage ") + std::to_string(stage) + " waits at " +
                       ToText(work_[stage][next_[stage]]);
    }
    std::stable_sort(result_.events.begin(), result_.events.end(), [](const auto& a, const auto& b) {
      return a.end != b.end ? a.end < b.end : a.stage != b.stage ? a.stage < b.stage : a.index < b.index;
    });
    for (const SimulatedSchedule::Stage& stage : result_.stages) result_.seconds = std::max(result_.seconds, stage.end);
    return std::move(result_);
  }

 private:
  size_t At(int chunk, int micro_batch) const {
    return static_cast<size_t>(chunk * shape_.micro_batches + micro_batch);
  }

  double Cost(const Work& work) const {
    const WorkCost& cost = costs_[static_cast<size_t>(work.chunk)];
    switch (work.kind) {
      case WorkKind::forward:
        return cost.forward;
      case WorkKind::backward:
        return cost.backward_input + cost.backward_weight;
      case WorkKind::backward_input:
        return cost.backward_input;
      case WorkKind::backward_weight:
        return cost.backward_weight;
    }
    return 0;
  }

  /// When what another chunk makes is here.
  double Arrival(double done, int from, int to) const {
    return done == kNever || shape_.StageOf(from) == shape_.StageOf(to) ? done : done + message_;
  }

  /// When all that the work needs is there; kNever: it is not yet known.
  double Ready(const Work& work) const {
    const int c = work.chunk, m = work.micro_batch;
    if (work.kind == WorkKind::forward) return c == 0 ? 0 : Arrival(forward_done_[At(c - 1, m)], c - 1, c);
    if (work.kind == WorkKind::backward_weight) return input_done_[At(c, m)];
    const double forward = forward_done_[At(c, m)];
    if (forward == kNever || c + 1 == shape_.chunks()) return forward;
    const double gradient = Arrival(input_done_[At(c + 1, m)], c + 1, c);
    return gradient == kNever ? kNever : std::max(forward, gradient);
  }

  bool Advance(int stage) {
    const size_t s = static_cast<size_t>(stage), index = next_[s];
    if (index == work_[s].size()) return false;
    const Work& work = work_[s][index];
    const double ready = Ready(work);
    if (ready == kNever) return false;
    const double begin = std::max(ready, free_[s]), end = begin + Cost(work);
    SimulatedSchedule::Stage& facts = result_.stages[s];
    if (index == 0) facts.begin = begin;
    facts.busy += end - begin;
    facts.end = free_[s] = end;
    if (work.kind == WorkKind::forward) {
      forward_done_[At(work.chunk, work.micro_batch)] = end;
      facts.peak_live = std::max(facts.peak_live, ++live_[s] / shape_.virtual_stages);
    } else if (work.kind != WorkKind::backward_weight) {
      input_done_[At(work.chunk, work.micro_batch)] = end;
    }
    if (work.kind == WorkKind::backward || work.kind == WorkKind::backward_weight) --live_[s];
    result_.events.push_back({stage, index, begin, end});
    ++next_[s];
    return true;
  }

  const ScheduleShape& shape_;
  const std::vector<std::vector<Work>>& work_;
  const std::vector<WorkCost>& costs_;
  const double message_;
  std::vector<size_t> next_;
  std::vector<double> free_;                       // of a stage: when it is
  std::vector<double> forward_done_, input_done_;  // of a chunk and micro-batch
  std::vector<double> live_;
  SimulatedSchedule result_;
};

}  // namespace

double SimulatedSchedule::IdleShare() const {
  double busy = 0;
  for (const Stage& stage : stages) busy += stage.busy;
  return seconds > 0 ? 1 - busy / (seconds * static_cast<double>(stages.size())) : 0;
}

SimulatedSchedule Simulate(const ScheduleShape& shape, const std::vector<std::vector<Work>>& work,
                           const std::vector<WorkCost>& costs, double message) {
  return Simulation(shape, work, costs, message).Run();
}

}  // namespace ds
