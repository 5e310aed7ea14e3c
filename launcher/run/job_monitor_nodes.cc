// Nodes, as a job sees them: heard, suspected, lost.
#include <algorithm>
#include <utility>

#include "launcher/run/job_monitor.h"
#include "launcher/run/monitor_words.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace ds {
namespace {

constexpr double kAcknowledgeSeconds = 3;  // kernels acknowledge within a second, whatever their processes do
constexpr double kSuspectSeconds = 3;      // agents speak once a second
constexpr double kOwnSilenceSeconds = 2;   // Tick comes every 100 ms, unless this process is stopped or starved
constexpr double kSoonSeconds = 5;         // what agents did meanwhile is heard right after
constexpr double kAgentEndSeconds = 1;     // a lost connection and the end of the process behind it

}  // namespace

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
  LoseNode(actions, node_index, "the agent on " + node.host + " was lost: its connection closed" + OwnSilence(now),
           now);
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
  std::string how = "the agent on " + node.host + " was lost: " + EndText({code, signal}) +
                    (text.empty() ? "" : ": " + text) + OwnSilence(now);
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

/// While this process was stopped or starved it heard nobody, and what they said waits to be read: that is not their
/// silence.
void JobMonitor::ForgiveOwnSilence(MonitorTime now) {
  const MonitorTime before = ticked_at_.value_or(now);
  ticked_at_ = now;
  if (Between(before, now) < kOwnSilenceSeconds) return;
  own_silence_ = Between(before, now);
  own_silence_end_ = now;
  const auto gap = now - before;
  for (Node& node : nodes_) {
    node.heard = std::min(now, node.heard + gap);
    node.suspected_at += gap;
  }
  progress_at_ = std::min(now, progress_at_ + gap);
  progress_.Shift(gap);
}

/// Where agents that are lost now took this process for lost, and ended as they should: the rest of a sentence that
/// says so; else empty.
std::string JobMonitor::OwnSilence(MonitorTime now) const {
  double silence = ticked_at_ ? Between(*ticked_at_, now) : 0;  // it may just have woken
  if (silence < kOwnSilenceSeconds && Between(own_silence_end_, now) < kSoonSeconds) silence = own_silence_;
  if (silence < settings_.lease_seconds) return "";
  return ", after ds-launch itself was stopped or starved for " + Seconds(silence) +
         ": agents take a launcher that is silent for launch.lease_seconds (" + Seconds(settings_.lease_seconds) +
         ") for lost, and end its workers";
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

/// A connection closes a moment before its process can be reaped: the signal is worth waiting for.
bool JobMonitor::AwaitsEndOf(const Node& node, MonitorTime now) const {
  return settings_.sees_agents_end && !node.gone && node.closed && !node.process_end &&
         Between(node.closed_at, now) < kAgentEndSeconds;
}

bool JobMonitor::AwaitsAgentsEnd(MonitorTime now) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Node& node) { return AwaitsEndOf(node, now); });
}

bool JobMonitor::HasRanks(int node) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return rank.node == node; });
}

}  // namespace ds
