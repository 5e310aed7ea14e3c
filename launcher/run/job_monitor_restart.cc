// Whether a job that failed starts again, and on which nodes.
#include <algorithm>

#include "launcher/run/job_monitor.h"
#include "runtime/base/text.h"

namespace ds {
/// Null: as often as it happens.
int64_t* JobMonitor::BudgetOf(Trouble::Budget budget) {
  if (budget == Trouble::Budget::node) return left_.by_cause && left_.node ? &*left_.node : nullptr;
  if (!left_.by_cause) return &left_.any;
  return budget == Trouble::Budget::worker ? &left_.worker : &left_.no_progress;
}

bool JobMonitor::MayRestart(Actions& actions, const Trouble& trouble, std::string& how) {
  if (phase_ != Phase::failing || trouble.budget == Trouble::Budget::none || signal_ != 0) return false;
  const bool node_lost = std::any_of(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.lost && !n.gone; });
  if (node_lost && !settings_.refit) return false;
  int64_t* left = BudgetOf(node_lost ? Trouble::Budget::node : trouble.budget);
  if (left && *left == 0) return false;
  // Nodes come to an end by themselves; other causes may come again and again.
  // A program has no steps that we know of: its budget alone bounds it.
  if (!node_lost && !settings_.programs && restarted_ && step_in_attempt_ == 0) {
    Record(actions, "restart_refused", trouble.cause.host, trouble.cause.rank,
           "no step was done since the last restart: another would end the same way");
    return false;
  }
  if (node_lost && !Refit(actions, trouble, how)) return false;
  restarted_ = true;
  if (left)
    how += ", " + (--*left == 0 ? "for the last time" : "at most " + Count(*left, "more time")) + " (launch.restarts)";
  return true;
}

bool JobMonitor::Refit(Actions& actions, const Trouble& trouble, std::string& how) {
  std::vector<int> left;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].lost) left.push_back(static_cast<int>(i));
  }
  const MonitorRefit refit = settings_.refit(left);
  if (refit.ranks.empty()) {
    Record(actions, "restart_refused", trouble.cause.host, trouble.cause.rank,
           "the job cannot go on without the lost node: " + refit.text);
    return false;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].lost) continue;
    nodes_[i].gone = true;
    Drop(actions, static_cast<int>(i));
  }
  ranks_.clear();
  for (const MonitorRank& rank : refit.ranks) {
    Rank state;
    state.node = rank.node;
    ranks_.push_back(state);
  }
  how = " on " + refit.text;
  return true;
}

}  // namespace ds
