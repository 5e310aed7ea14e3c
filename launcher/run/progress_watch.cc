#include "launcher/run/progress_watch.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "launcher/run/monitor_words.h"

namespace ds {
namespace {

constexpr double kLeastSeconds = 10;      // whatever was learnt: a machine may be busy for so long
constexpr double kTimes = 10;             // as long as it ever took
constexpr double kUnlearntSeconds = 120;  // libraries load, networks connect, files are cold
constexpr size_t kLearntFrom = 3;         // durations of a phase that make a history
constexpr size_t kHistory = 512;          // the newest that count
constexpr double kLeastOfProgress = 2;    // below that, workers that speak once a second cannot be judged
constexpr double kSilentSeconds = 3;      // a worker that has not spoken for so long is held up itself
constexpr size_t kMaxPhases = 64;         // states are words of ours; more would be nonsense

MonitorTime Before(MonitorTime now, double seconds) {
  return now - std::chrono::duration_cast<MonitorTime::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void ProgressWatch::Begin(size_t ranks, MonitorTime now) {
  ranks_.assign(ranks, {});
  for (size_t i = 0; i < ranks; ++i) {
    ranks_[i].beat.rank = static_cast<int>(i);
    ranks_[i].moved_at = ranks_[i].progress_at = now;
  }
}

void ProgressWatch::Heard(const WorkerBeat& beat, MonitorTime now) {
  Rank& rank = ranks_[static_cast<size_t>(beat.rank)];
  const bool progress = beat.step > rank.beat.step || beat.state != rank.beat.state;
  if (progress) {
    const MonitorTime at = std::max(rank.progress_at, Before(now, beat.since_progress_seconds));
    const double steps = static_cast<double>(std::max<int64_t>(1, beat.step - rank.beat.step));
    if (!rank.beat.state.empty()) Learn(rank.beat.state, Between(rank.progress_at, at) / steps);
    rank.progress_at = at;
  }
  if (progress || beat.action_index != rank.beat.action_index) rank.moved_at = now;
  const int64_t furthest = std::max(rank.beat.step, beat.step);
  rank.beat = beat;
  rank.beat.step = furthest;
}

void ProgressWatch::Shift(std::chrono::steady_clock::duration gap) {
  for (Rank& rank : ranks_) {
    rank.moved_at += gap;
    rank.progress_at += gap;
  }
}

void ProgressWatch::Learn(const std::string& state, double seconds) {
  if (learnt_.size() >= kMaxPhases && learnt_.count(state) == 0) return;
  History& history = learnt_[state];
  if (history.seconds.size() < kHistory) {
    history.seconds.push_back(seconds);
  } else {
    history.seconds[history.next] = seconds;
    history.next = (history.next + 1) % kHistory;
  }
}

double ProgressWatch::Limit(const std::string& state) const {
  double limit = kUnlearntSeconds;
  const auto found = learnt_.find(state);
  if (found != learnt_.end() && found->second.seconds.size() >= kLearntFrom) {
    std::vector<double> seconds = found->second.seconds;
    const auto at = seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) * 99 / 100 +
                                                                  ((seconds.size() - 1) * 99 % 100 != 0 ? 1 : 0));
    std::nth_element(seconds.begin(), at, seconds.end());
    limit = std::max(kLeastSeconds, kTimes * *at);
  }
  if (progress_seconds_ <= 0) return limit;
  const double half = progress_seconds_ / 2;
  return half < kLeastOfProgress ? std::numeric_limits<double>::infinity() : std::min(limit, half);
}

std::vector<int> ProgressWatch::Stalled(MonitorTime now, const Applies& applies, double part) const {
  std::vector<int> stalled;
  std::map<std::string, double> limits;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const double unmoved = Between(rank.moved_at, now);
    if (rank.ended || unmoved < kLeastOfProgress || !applies(static_cast<int>(i))) continue;
    const auto [limit, unknown] = limits.try_emplace(rank.beat.state, 0);
    if (unknown) limit->second = Limit(rank.beat.state);
    if (unmoved > part * limit->second) stalled.push_back(static_cast<int>(i));
  }
  return stalled;
}

bool ProgressWatch::Worse(const Rank& a, const Rank& b) {
  if (a.beat.step != b.beat.step) return a.beat.step < b.beat.step;
  const bool a_silent = a.beat.silent_seconds >= kSilentSeconds, b_silent = b.beat.silent_seconds >= kSilentSeconds;
  if (a_silent != b_silent) return a_silent;
  if (a.beat.waits != b.beat.waits) return !a.beat.waits;
  if (a.beat.action_index && b.beat.action_index && a.beat.action_index != b.beat.action_index)
    return a.beat.action_index < b.beat.action_index;
  return a.moved_at < b.moved_at;
}

int ProgressWatch::Laggard(const Applies& applies) const {
  int laggard = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].ended || !applies(static_cast<int>(i))) continue;
    if (laggard < 0 || Worse(ranks_[i], ranks_[static_cast<size_t>(laggard)])) laggard = static_cast<int>(i);
  }
  return laggard;
}

std::string ProgressWatch::Describe(int rank) const {
  const WorkerBeat& beat = last(rank);
  std::string text = "at step " + std::to_string(beat.step);
  if (!beat.state.empty()) text += ", state " + beat.state;
  if (!beat.action.empty()) text += ", action " + beat.action;
  if (beat.waits) text += ", waiting for its peers";
  if (beat.silent_seconds >= kSilentSeconds) {
    char seconds[48];
    std::snprintf(seconds, sizeof seconds, ", not heard for %.3g s", beat.silent_seconds);
    text += seconds;
  }
  return text;
}

double ProgressWatch::Unmoved(int rank, MonitorTime now) const {
  return Between(ranks_[static_cast<size_t>(rank)].moved_at, now);
}

}  // namespace ds
