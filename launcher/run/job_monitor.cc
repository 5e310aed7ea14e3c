#include "launcher/run/job_monitor.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/run/monitor_words.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/signal.h"

namespace ds {
namespace {

constexpr int64_t kClocksAgreeNs = 50'000'000;  // their offset is known as far as a message's way takes
constexpr double kGiveUpSeconds = 10;  // after SIGKILL: a worker that still does not end is stuck in the kernel

std::string StatusOf(int signal) { return signal == SIGUSR1 || signal == SIGUSR2 ? "preempted" : "interrupted"; }

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
                    end.code != static_cast<int>(ExitCode::usage) ? Trouble::Budget::worker : Trouble::Budget::none,
                    end.ended_ns};
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
  if (cause.kind != "preflight") Record(actions, "launcher", cause.host, cause.rank, cause.message);  // told already
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

/// Whether `a`, which was heard of after `b`, came before it all the same: what the clocks of their nodes tell, between
/// nodes as far as those agree.
bool JobMonitor::Precedes(const Trouble& a, const Trouble& b) {
  if (a.weight != b.weight) return a.weight < b.weight;
  if (a.at_ns == 0 || b.at_ns == 0) return false;
  return a.at_ns + (a.cause.host == b.cause.host ? 0 : kClocksAgreeNs) < b.at_ns;
}

JobMonitor::Trouble JobMonitor::FirstCause() const {
  const Trouble* first = &troubles_[0];
  for (const Trouble& trouble : troubles_)
    if (Precedes(trouble, *first)) first = &trouble;
  return *first;
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

void JobMonitor::Finish(Actions& actions, JobOutcome outcome) {
  phase_ = Phase::ended;
  outcome_ = std::move(outcome);
  actions.push_back({MonitorAction::Kind::finish});
}

}  // namespace ds
