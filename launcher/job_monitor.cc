#include "launcher/job_monitor.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/signal.h"

namespace ds {
namespace {

constexpr double kGiveUpSeconds = 10;      // after SIGKILL: a worker that still does not end is stuck in the kernel
constexpr double kAcknowledgeSeconds = 3;  // kernels acknowledge within a second, whatever their processes do
constexpr double kSuspectSeconds = 3;      // agents speak once a second
constexpr double kOwnSilenceSeconds = 2;   // Tick comes every 100 ms, unless this process is stopped or starved
constexpr double kAgentEndSeconds = 1;     // a lost connection and the end of the process behind it

MonitorTime After(MonitorTime now, double seconds) {
  return now + std::chrono::duration_cast<MonitorTime::duration>(std::chrono::duration<double>(seconds));
}

double Between(MonitorTime earlier, MonitorTime later) {
  return std::chrono::duration<double>(later - earlier).count();
}

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

std::string StatusOf(int signal) { return signal == SIGUSR1 || signal == SIGUSR2 ? "preempted" : "interrupted"; }

std::string Who(int rank, const std::string& host) { return "rank " + std::to_string(rank) + " on " + host; }

}  // namespace

JobMonitor::JobMonitor(MonitorSettings settings, std::vector<std::string> hosts, std::vector<MonitorRank> ranks)
    : settings_(settings), left_(settings.restarts), progress_(settings.progress_seconds) {
  for (std::string& host : hosts) {
    Node node;
    node.host = std::move(host);
    nodes_.push_back(std::move(node));
  }
  for (const MonitorRank& rank : ranks) {
    Rank state;
    state.node = rank.node;
    ranks_.push_back(std::move(state));
  }
}

void JobMonitor::Record(Actions& actions, const std::string& event, const std::string& host, int rank,
                        const std::string& text) {
  MonitorAction action{MonitorAction::Kind::record};
  action.attempt = attempt_;
  action.event = event;
  action.host = host;
  action.rank = rank;
  action.text = text;
  actions.push_back(std::move(action));
}

JobMonitor::Actions JobMonitor::Begin(MonitorTime now) {
  Actions actions;
  if (phase_ != Phase::starting) return actions;
  for (Node& node : nodes_) node.heard = now;
  StartAttempt(actions, now);
  return actions;
}

void JobMonitor::StartAttempt(Actions& actions, MonitorTime now) {
  phase_ = Phase::running;
  ++attempt_;
  step_in_attempt_ = 0;
  progress_at_ = now;
  troubles_.clear();
  victims_.clear();
  completed_ = 0;
  stopped_.reset();
  kill_at_.reset();
  give_up_at_.reset();
  for (Rank& rank : ranks_) rank.ended = false;
  progress_.Begin(ranks_.size(), now);
  stall_told_ = stacks_asked_ = false;
  MonitorAction start{MonitorAction::Kind::start_workers};
  start.attempt = attempt_;
  actions.push_back(start);
}

JobMonitor::Actions JobMonitor::AgentHeard(int node_index, MonitorTime now) {
  Actions actions;
  Node& node = nodes_[static_cast<size_t>(node_index)];
  if (node.lost) return actions;
  node.heard = now;
  if (std::exchange(node.suspect, false)) Record(actions, "recovered", node.host, -1, "the agent answers again");
  return actions;
}

JobMonitor::Actions JobMonitor::LinkSeen(int node_index, double unacknowledged, MonitorTime now) {
  Actions actions;
  Node& node = nodes_[static_cast<size_t>(node_index)];
  if (unacknowledged < kAcknowledgeSeconds || node.lost || phase_ == Phase::starting || phase_ == Phase::ended)
    return actions;
  LoseNode(actions, node_index,
           "the agent on " + node.host + " was lost: its machine has acknowledged nothing for " +
               Seconds(unacknowledged) + " (it is down, or cut off)",
           now);
  Drop(actions, node_index);
  Decide(actions, now);
  return actions;
}

JobMonitor::Actions JobMonitor::AgentClosed(int node_index, MonitorTime now) {
  Actions actions;
  Node& node = nodes_[static_cast<size_t>(node_index)];
  if (node.closed || phase_ == Phase::ended) return actions;
  node.closed = true;
  node.closed_at = now;
  LoseNode(actions, node_index, "the agent on " + node.host + " was lost: its connection closed", now);
  // Whoever closes a connection is about to end: its own end tells why, so it has a moment before it is killed.
  if (!settings_.sees_agents_end) Drop(actions, node_index);
  Decide(actions, now);
  return actions;
}

JobMonitor::Actions JobMonitor::AgentEnded(int node_index, int code, int signal, MonitorTime now,
                                           const std::string& text) {
  Actions actions;
  Node& node = nodes_[static_cast<size_t>(node_index)];
  if (phase_ == Phase::ended) return actions;
  WorkerEnd end;
  end.code = code;
  end.signal = signal;
  node.process_end = end;
  std::string how =
      "the agent on " + node.host + " was lost: " + EndText({code, signal}) + (text.empty() ? "" : ": " + text);
  if (node.lost) {  // its connection closed first; now the reason is known, unless the end was our doing
    for (Trouble& trouble : troubles_) {
      if (node.dropped || trouble.cause.kind != "node_lost" || trouble.cause.host != node.host) continue;
      trouble.cause.signal = signal;
      trouble.cause.code = code;
      trouble.cause.message = how;
    }
  } else {
    LoseNode(actions, node_index, how, now);
  }
  Decide(actions, now);
  return actions;
}

void JobMonitor::LoseNode(Actions& actions, int node_index, const std::string& why, MonitorTime now) {
  Node& node = nodes_[static_cast<size_t>(node_index)];
  if (std::exchange(node.lost, true)) return;
  Record(actions, "node_lost", node.host, -1, why);
  if (phase_ == Phase::running && !HasRanks(node_index)) {  // a spare: nobody misses it
    node.gone = true;
    Drop(actions, node_index);
    return;
  }
  Trouble trouble{Trouble::Weight::own,
                  {"node_lost", node.host, -1, 0, 0, why},
                  static_cast<int>(ExitCode::node_lost),
                  Trouble::Budget::node};
  if (node.process_end) {
    trouble.cause.signal = node.process_end->signal;
    trouble.cause.code = node.process_end->code;
  }
  troubles_.push_back(std::move(trouble));
  for (Rank& rank : ranks_) {
    if (rank.node != node_index) continue;
    rank.ended = true;
    progress_.Ended(static_cast<int>(&rank - ranks_.data()));
  }
  BeginFailing(actions, now);
}

void JobMonitor::Drop(Actions& actions, int node_index) {
  if (std::exchange(nodes_[static_cast<size_t>(node_index)].dropped, true)) return;
  MonitorAction drop{MonitorAction::Kind::drop_agent};
  drop.node = node_index;
  actions.push_back(drop);
}

JobMonitor::Actions JobMonitor::WorkerHeard(const WorkerBeat& beat, MonitorTime now) {
  Actions actions;
  const int64_t step = beat.step;
  const int rank_index = beat.rank;
  const WorkerBeat& before = progress_.last(rank_index);
  if (step > before.step || beat.state != before.state) progress_at_ = now;
  progress_.Heard(beat, now);
  if (step > 0 && step_in_attempt_ == 0 && attempt_ > 1 && phase_ == Phase::running) {
    Record(actions, "going_on", HostOf(rank_index), rank_index,
           "attempt " + std::to_string(attempt_) + " did its first step, " + std::to_string(step) + ", " +
               Seconds(Between(failed_at_, now)) + " after the failure was found");
  }
  step_in_attempt_ = std::max(step_in_attempt_, step);
  furthest_step_ = std::max(furthest_step_, step);
  return actions;
}

JobMonitor::Actions JobMonitor::WorkerEnded(const WorkerEnd& end, MonitorTime now) {
  Actions actions;
  Rank& rank = ranks_[static_cast<size_t>(end.rank)];
  if (rank.ended || phase_ == Phase::ended) return actions;
  rank.ended = true;
  progress_.Ended(end.rank);
  progress_at_ = now;
  // Programs that end soon after a signal that they got through us end because of it.
  if (passed_signal_ != 0 && troubles_.empty() && !signal_is_cause_) {
    passed_is_cause_ = passed_is_cause_ || Between(passed_at_, now) <= settings_.grace_seconds;
  }
  const std::string& host = HostOf(end.rank);
  if (end.completed) ++completed_;
  if (end.stopped && (!stopped_ || stopped_->stop_signal == 0)) stopped_ = end;
  if (end.signal != 0 || end.code != 0) {
    std::string how = Who(end.rank, host) + (end.signal != 0 ? " was " : " ended with ") +
                      EndText({end.code, end.signal}) + (end.message.empty() ? "" : ": " + end.message);
    // What we did ourselves is nobody's failure: a signal that we sent, or an exit that answers it without a word.
    bool by_us = end.signal != 0 ? end.signal == end.agent_signal : end.agent_signal != 0 && end.message.empty();
    Trouble trouble{end.victim ? Trouble::Weight::victim
                    : by_us    ? Trouble::Weight::asked
                               : Trouble::Weight::own,
                    {end.signal != 0    ? "worker_signal"
                     : end.kind.empty() ? "worker_exit"
                                        : end.kind,
                     host, end.rank, end.signal, end.code, how},
                    end.signal != 0 ? 128 + end.signal : end.code,
                    end.code != static_cast<int>(ExitCode::usage) ? Trouble::Budget::worker : Trouble::Budget::none};
    if (end.victim) victims_.push_back(end);
    Record(actions, end.victim ? "victim" : "worker_end", host, end.rank, how);
    troubles_.push_back(std::move(trouble));
    BeginFailing(actions, now);
  }
  Decide(actions, now);
  return actions;
}

JobMonitor::Actions JobMonitor::Signalled(int signal, MonitorTime now) {
  Actions actions;
  if (phase_ == Phase::ended) return actions;
  std::string name = SignalName(signal);
  if (signal_ != 0 || phase_ == Phase::failing) {
    if (signal_ == 0) signal_ = signal;  // no restart any more
    Record(actions, "signal", "", -1, name + " received while ending: killing the workers");
    actions.push_back({MonitorAction::Kind::kill_workers});
    if (!give_up_at_) give_up_at_ = After(now, kGiveUpSeconds);
    kill_at_.reset();
    return actions;
  }
  // What SIGUSR1 and SIGUSR2 mean, a program knows: to save its state and go on, as batch systems ask in good time.
  if (settings_.programs && phase_ == Phase::running && (signal == SIGUSR1 || signal == SIGUSR2)) {
    passed_signal_ = signal;
    passed_at_ = now;
    Record(actions, "signal", "", -1, name + " received and passed on");
    MonitorAction pass{MonitorAction::Kind::pass_signal};
    pass.signal = signal;
    actions.push_back(pass);
    return actions;
  }
  signal_ = signal;
  signal_is_cause_ = true;
  Record(actions, "signal", "", -1, name + " received");
  if (phase_ == Phase::starting) {
    Decide(actions, now);
  } else if (phase_ == Phase::running) {
    phase_ = Phase::stopping;
    MonitorAction stop{MonitorAction::Kind::stop_workers};
    stop.signal = settings_.programs ? signal : SIGTERM;
    stop.checkpoint = settings_.checkpoint_on_signal;
    actions.push_back(stop);
    kill_at_ = After(now, settings_.grace_seconds);
  }
  return actions;
}

JobMonitor::Actions JobMonitor::Failed(Cause cause, MonitorTime now) {
  Actions actions;
  if (phase_ == Phase::ended) return actions;
  Record(actions, "launcher", cause.host, cause.rank, cause.message);
  int code = cause.code != 0 ? cause.code : 1;
  troubles_.push_back({Trouble::Weight::own, std::move(cause), code, Trouble::Budget::none});
  BeginFailing(actions, now);
  Decide(actions, now);
  return actions;
}

JobMonitor::Actions JobMonitor::Tick(MonitorTime now) {
  Actions actions;
  if (phase_ == Phase::starting || phase_ == Phase::ended) return actions;
  ForgiveOwnSilence(now);
  CheckLeases(actions, now);
  if (phase_ == Phase::running) CheckStalls(actions, now);
  if (phase_ == Phase::running) CheckProgress(actions, now);
  Escalate(actions, now);
  Decide(actions, now);
  return actions;
}

/// While this process was stopped or starved it heard nobody, and what they said waits to be read: that is not their
/// silence.
void JobMonitor::ForgiveOwnSilence(MonitorTime now) {
  const MonitorTime before = ticked_at_.value_or(now);
  ticked_at_ = now;
  if (Between(before, now) < kOwnSilenceSeconds) return;
  const auto gap = now - before;
  for (Node& node : nodes_) {
    node.heard = std::min(now, node.heard + gap);
    node.suspected_at += gap;
  }
  progress_at_ = std::min(now, progress_at_ + gap);
  progress_.Shift(gap);
}

void JobMonitor::CheckLeases(Actions& actions, MonitorTime now) {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.lost) {
      if (!node.gone && !node.process_end && !AwaitsEndOf(node, now)) Drop(actions, static_cast<int>(i));
      continue;
    }
    const double silent = Between(node.heard, now);
    const bool expired = silent >= settings_.lease_seconds;
    if (expired || (node.suspect && Between(node.suspected_at, now) >= settings_.suspect_seconds)) {
      LoseNode(actions, static_cast<int>(i),
               "the agent on " + node.host + " was lost: silent for " + Seconds(silent) + " (" +
                   (expired ? "launch.lease_seconds" : "launch.suspect_seconds") + "), though its machine answers",
               now);
      Drop(actions, static_cast<int>(i));
    } else if (silent >= kSuspectSeconds && !node.suspect) {
      node.suspect = true;
      node.suspected_at = now;
      Record(actions, "suspect", node.host, -1,
             "the agent on " + node.host + " has been silent for " + Seconds(silent) +
                 ", though its machine answers: it is stopped or starved, and lost if that lasts " +
                 Seconds(settings_.suspect_seconds) + " more (launch.suspect_seconds)");
    }
  }
}

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

void JobMonitor::BeginFailing(Actions& actions, MonitorTime now) {
  // After a signal: the step in progress needs every rank, so that no more comes of a longer wait.
  if (phase_ == Phase::stopping && kill_at_)
    kill_at_ = std::min(*kill_at_, After(now, settings_.failure_grace_seconds));
  if (phase_ != Phase::running) return;  // an ending is under way, or nothing runs yet
  phase_ = Phase::failing;
  failed_at_ = now;
  if (AllEnded()) return;
  MonitorAction stop{MonitorAction::Kind::stop_workers};
  stop.signal = SIGTERM;
  stop.checkpoint = false;
  actions.push_back(stop);
  kill_at_ = After(now, settings_.failure_grace_seconds);
}

void JobMonitor::Escalate(Actions& actions, MonitorTime now) {
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    if (AllEnded()) return;
    Record(actions, "kill", "", -1, "workers are left after their grace: killing them");
    AskStacks(actions);
    actions.push_back({MonitorAction::Kind::kill_workers});
    give_up_at_ = After(now, kGiveUpSeconds);
  }
  if (give_up_at_ && now >= *give_up_at_) {
    give_up_at_.reset();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].ended) continue;
      ranks_[i].ended = true;
      progress_.Ended(static_cast<int>(i));
      Record(actions, "stuck", HostOf(static_cast<int>(i)), static_cast<int>(i),
             Who(static_cast<int>(i), HostOf(static_cast<int>(i))) + " did not end after SIGKILL");
    }
  }
}

bool JobMonitor::AllEnded() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

/// A connection closes a moment before its process can be reaped: the signal is worth waiting for.
bool JobMonitor::AwaitsEndOf(const Node& node, MonitorTime now) const {
  return settings_.sees_agents_end && !node.gone && node.closed && !node.process_end &&
         Between(node.closed_at, now) < kAgentEndSeconds;
}

bool JobMonitor::AwaitsAgentsEnd(MonitorTime now) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) { return AwaitsEndOf(node, now); });
}

JobMonitor::Trouble JobMonitor::FirstCause() const {
  return *std::min_element(troubles_.begin(), troubles_.end(),
                           [](const Trouble& a, const Trouble& b) { return a.weight < b.weight; });  // first of equals
}

void JobMonitor::Decide(Actions& actions, MonitorTime now) {
  if (phase_ == Phase::ended) return;
  bool nothing_runs = phase_ == Phase::starting;
  if (nothing_runs ? signal_ == 0 && troubles_.empty() : !AllEnded() || AwaitsAgentsEnd(now)) return;
  bool completed = completed_ == static_cast<int>(ranks_.size());  // before they noticed that they should stop
  if ((signal_is_cause_ || passed_is_cause_) && !completed) {
    int signal = passed_is_cause_ ? passed_signal_ : signal_;
    Cause cause{"signal", "", -1, signal, 0, "ds-launch received " + SignalName(signal)};
    return Finish(actions, {StatusOf(signal), 128 + signal, cause, {}});
  }
  if (troubles_.empty()) {
    if (!stopped_) return Finish(actions, {"completed", 0, std::nullopt, {}});
    int signal = stopped_->stop_signal != 0 ? stopped_->stop_signal : SIGTERM;
    std::string host = HostOf(stopped_->rank);
    Cause cause{
        "signal", host, stopped_->rank,
        signal,   0,    Who(stopped_->rank, host) + " was told to stop by somebody else's " + SignalName(signal)};
    return Finish(actions, {StatusOf(signal), 128 + signal, cause, {}});
  }
  Trouble trouble = FirstCause();
  std::string how;
  if (MayRestart(actions, trouble, how)) {
    Record(actions, "restart", trouble.cause.host, trouble.cause.rank,
           trouble.cause.message + "; starting the workers again" + how);
    return StartAttempt(actions, now);
  }
  Finish(actions, {"failed", trouble.exit_code, trouble.cause, victims_});
}

bool JobMonitor::HasRanks(int node) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.node == node; });
}

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
  if (left) how += ", " + std::to_string(--*left) + " more times at most (launch.restarts)";
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

void JobMonitor::Finish(Actions& actions, JobOutcome outcome) {
  phase_ = Phase::ended;
  outcome_ = std::move(outcome);
  actions.push_back({MonitorAction::Kind::finish});
}

}  // namespace ds
