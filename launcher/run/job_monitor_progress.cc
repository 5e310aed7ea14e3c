// Ranks that stand still: told, then the end of the job.
#include <algorithm>
#include <utility>

#include "launcher/run/job_monitor.h"
#include "launcher/run/monitor_words.h"
#include "runtime/base/error.h"

namespace ds {
/// An agent that is silent says nothing of its workers, who may well go on.
bool JobMonitor::Judged(int rank) const {
  const Node& node = nodes_[static_cast<size_t>(ranks_[static_cast<size_t>(rank)].node)];
  return !node.suspect && !node.lost;
}

/// Once a stall: a worker that is being ended would answer worse than before.
void JobMonitor::AskStacks(Actions& actions) {
  if (!std::exchange(stacks_asked_, true)) actions.push_back({MonitorAction::Kind::ask_stacks});
}

void JobMonitor::CheckStalls(Actions& actions, MonitorTime now) {
  std::vector<int> stalled = progress_.Stalled(now, [&](int rank) { return Judged(rank); });
  if (stalled.empty()) {
    stacks_asked_ = false;
    if (std::exchange(stall_told_, false)) Record(actions, "stall_over", "", -1, "every rank makes progress again");
    return;
  }
  if (std::exchange(stall_told_, true)) return;
  // Ranks are heard of one by one, up to a second apart: those that are about to be stalled are looked at as well.
  stalled = progress_.Stalled(
      now, [&](int rank) { return Judged(rank); }, 0.75);
  const int laggard =
      progress_.Laggard([&](int rank) { return std::find(stalled.begin(), stalled.end(), rank) != stalled.end(); });
  const std::string& state = progress_.last(laggard).state;
  Record(actions, "stalled", HostOf(laggard), laggard,
         Who(laggard, HostOf(laggard)) + " has not moved for " + Seconds(progress_.Unmoved(laggard, now)) + ", " +
             progress_.Describe(laggard) + ": far longer than ever before (limit " + Seconds(progress_.Limit(state)) +
             "); " + std::to_string(stalled.size()) + " of " + std::to_string(ranks_.size()) +
             " ranks do not move. What their threads do: stacks/rank-N-attempt-" + std::to_string(attempt_) +
             ".txt in the run directory");
  AskStacks(actions);
}

void JobMonitor::CheckProgress(Actions& actions, MonitorTime now) {
  if (settings_.progress_seconds <= 0 || Between(progress_at_, now) < settings_.progress_seconds) return;
  int laggard = progress_.Laggard([&](int rank) { return Judged(rank); });
  if (laggard < 0) laggard = progress_.Laggard([](int) { return true; });
  if (laggard < 0) return;
  std::string text = "no step for " + Seconds(Between(progress_at_, now)) +
                     " (launch.progress_seconds): " + Who(laggard, HostOf(laggard)) + " lags, " +
                     progress_.Describe(laggard);
  Record(actions, "no_progress", HostOf(laggard), laggard, text);
  AskStacks(actions);
  troubles_.push_back({Trouble::Weight::own,
                       {"no_progress", HostOf(laggard), laggard, 0, 0, text},
                       static_cast<int>(ExitCode::no_progress),
                       Trouble::Budget::no_progress});
  BeginFailing(actions, now);
}

}  // namespace ds
