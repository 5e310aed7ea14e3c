// The state machine of a job: what happened goes in, with the time at which it happened; what to do comes out. It looks
// at no clock, starts nothing and talks to nobody, so that every ending can be tested on a virtual clock.
//
//     starting -> running -> (stopping: a signal | failing: a cause) -> ended, or running again (a restart)
//
// The first cause in time decides how the job ends. A worker that ended because a peer did (it says so: exit code
// kVictimExitCode) is a victim: it starts the ending, but is the cause only when nobody else turns out to be.
//
// job_monitor.cc has the states and how they change, job_monitor_nodes.cc what is heard of nodes,
// job_monitor_progress.cc ranks that stand still, job_monitor_restart.cc whether and where the job starts again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/run/progress_watch.h"
#include "runtime/job/job_spec.h"
#include "runtime/run/outcome.h"

namespace ds {

struct MonitorRank {
  int node = 0;
};

/// How a job may go on without the nodes that were lost.
struct MonitorRefit {
  std::vector<MonitorRank> ranks;  ///< of the next attempt, renumbered; empty: it may not
  std::string text;                ///< how, or why not
};

struct MonitorSettings {
  RestartBudgets restarts;
  double grace_seconds = 30;         ///< after a signal: SIGTERM, then SIGKILL
  double failure_grace_seconds = 5;  ///< after a failure
  double lease_seconds = 30, suspect_seconds = 20;
  double progress_seconds = 600;  ///< 0: never
  bool checkpoint_on_signal = true;
  bool programs = false;  ///< workers are programs that we know nothing of: they get each signal as it came
  /// Asked when nodes were lost, with those that are left; the next start_workers is for its ranks. Empty: a lost node
  /// ends the job.
  std::function<MonitorRefit(const std::vector<int>& left)> refit;
  bool sees_agents_end = true;  ///< AgentEnded is called for each agent's process, with its signal
};

/// What the owner is to do.
struct MonitorAction {
  enum class Kind {
    start_workers,  ///< `attempt` (of which every action tells)
    stop_workers,   ///< ask all: `signal`, and whether to take a `checkpoint`
    pass_signal,    ///< `signal` to all programs, which may go on after it
    kill_workers,   ///< SIGKILL to all
    ask_stacks,     ///< ask all what their threads do, for RUN/stacks
    drop_agent,     ///< end the agent of `node`: it is given up and must not come back
    record,         ///< an event for events.jsonl and the screen: `event`, `host`, `rank`, `text`
    finish,         ///< over: JobMonitor::outcome() tells how
  };
  Kind kind;
  int64_t attempt = 0;
  int signal = 0;
  bool checkpoint = false;
  int node = 0;
  std::string event{}, host{}, text{};
  int rank = -1;
};

class JobMonitor {
 public:
  JobMonitor(MonitorSettings settings, std::vector<std::string> hosts, std::vector<MonitorRank> ranks);

  using Actions = std::vector<MonitorAction>;
  Actions Begin(MonitorTime now);  ///< every agent has joined
  Actions AgentHeard(int node, MonitorTime now);
  /// The kernel of its machine has acknowledged nothing for `unacknowledged` seconds of what was sent; 0: all is well.
  Actions LinkSeen(int node, double unacknowledged, MonitorTime now);
  Actions AgentClosed(int node, MonitorTime now);  ///< its session ended
  /// Its process ended; `text`: what else is known of why.
  Actions AgentEnded(int node, int code, int signal, MonitorTime now, const std::string& text = "");
  Actions WorkerHeard(const WorkerBeat& beat, MonitorTime now);
  Actions WorkerEnded(const WorkerEnd& end, MonitorTime now);
  Actions Signalled(int signal, MonitorTime now);
  Actions Failed(Cause cause, MonitorTime now);  ///< the launcher itself: it cannot write its files, ...
  Actions Tick(MonitorTime now);                 ///< at least every 250 ms

  int64_t attempt() const { return attempt_; }
  int64_t furthest_step() const { return furthest_step_; }
  bool stopping() const { return phase_ != Phase::running; }
  const JobOutcome& outcome() const { return outcome_; }

 private:
  enum class Phase { starting, running, stopping, failing, ended };
  struct Node {
    std::string host;
    MonitorTime heard;
    bool suspect = false, closed = false, lost = false, dropped = false;  ///< dropped: we killed its agent
    bool gone = false;                                                    ///< lost, and the job went on without it
    MonitorTime closed_at, suspected_at;
    std::optional<WorkerEnd> process_end;  ///< code and signal only
  };
  struct Rank {
    int node = 0;
    bool ended = false;
  };
  /// A candidate for the job's cause, in order of arrival.
  struct Trouble {
    enum class Weight { own, asked, victim } weight;  ///< lesser values are causes before greater ones
    Cause cause;
    int exit_code;
    enum class Budget { none, worker, node, no_progress } budget;  ///< of restarts; none: it would end the same way
    int64_t at_ns = 0;                                             ///< WorkerEnd::ended_ns
  };

  void Record(Actions& actions, const std::string& event, const std::string& host, int rank, const std::string& text);
  void StartAttempt(Actions& actions, MonitorTime now);
  void BeginFailing(Actions& actions, MonitorTime now);
  void LoseNode(Actions& actions, int node, const std::string& why, MonitorTime now);
  void Drop(Actions& actions, int node_index);
  void ForgiveOwnSilence(MonitorTime now);
  std::string OwnSilence(MonitorTime now) const;
  void CheckLeases(Actions& actions, MonitorTime now);
  void CheckProgress(Actions& actions, MonitorTime now);
  void AskStacks(Actions& actions);
  void CheckStalls(Actions& actions, MonitorTime now);
  bool Judged(int rank) const;
  void Escalate(Actions& actions, MonitorTime now);
  void Decide(Actions& actions, MonitorTime now);
  /// Whether the job starts again; then `how` tells what is new about it.
  bool MayRestart(Actions& actions, const Trouble& trouble, std::string& how);
  bool Refit(Actions& actions, const Trouble& trouble, std::string& how);
  int64_t* BudgetOf(Trouble::Budget budget);
  bool HasRanks(int node) const;
  void Finish(Actions& actions, JobOutcome outcome);
  bool AllEnded() const;
  bool AwaitsAgentsEnd(MonitorTime now) const;
  bool AwaitsEndOf(const Node& node, MonitorTime now) const;
  Trouble FirstCause() const;
  static bool Precedes(const Trouble& a, const Trouble& b);
  const std::string& HostOf(int rank) const { return nodes_[static_cast<size_t>(ranks_[rank].node)].host; }

  MonitorSettings settings_;
  std::vector<Node> nodes_;
  std::vector<Rank> ranks_;
  Phase phase_ = Phase::starting;
  std::optional<MonitorTime> ticked_at_;
  double own_silence_ = 0;  ///< seconds for which this process was stopped or starved, the newest time
  MonitorTime own_silence_end_;
  int64_t attempt_ = 0;
  bool restarted_ = false;       ///< for another reason than a lost node, or with one
  RestartBudgets left_;          ///< of restarts
  int64_t furthest_step_ = 0;    ///< of all attempts
  int64_t step_in_attempt_ = 0;  ///< the furthest; 0: none was done
  MonitorTime progress_at_;
  ProgressWatch progress_;
  bool stall_told_ = false, stacks_asked_ = false;  ///< and nothing has moved since
  MonitorTime failed_at_;                           ///< the newest attempt that failed
  std::vector<Trouble> troubles_;                   ///< of this attempt
  std::vector<WorkerEnd> victims_;                  ///< of this attempt
  int signal_ = 0;                                  ///< the first that the user sent
  bool signal_is_cause_ = false;                    ///< it came before any failure
  int passed_signal_ = 0;                           ///< the newest that programs got and might go on after; 0: none
  MonitorTime passed_at_;
  bool passed_is_cause_ = false;      ///< they did not
  int completed_ = 0;                 ///< workers of this attempt that did all their steps
  std::optional<WorkerEnd> stopped_;  ///< one that ended early because it was asked to; the one that got the signal
  std::optional<MonitorTime> kill_at_, give_up_at_;
  JobOutcome outcome_;
};

}  // namespace ds
