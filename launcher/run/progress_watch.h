// Which ranks make no progress, for far longer than they ever took, and which of them holds the others up. Knows no
// clock: tested on a virtual one.
//
// A rank *moves* when its step, its state (loading, training, checkpointing, ...) or the action of its plan changes.
// How long a phase takes is learnt while the job runs: the time a step takes in `training`, the stay in other states. A
// rank is stalled when it has not moved for max(10 s, 10 x the 99th percentile of its phase), or 120 s in a phase that
// was not seen three times yet; half of launch.progress_seconds at most, so that stacks are there before the job ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ds {

using MonitorTime = std::chrono::steady_clock::time_point;

/// What a worker says of itself, once a second, as its agent passes it on.
struct WorkerBeat {
  int rank = 0;
  int64_t step = 0;
  std::string state;
  std::string action{};                    ///< of the plan; empty: none
  std::optional<uint32_t> action_index{};  ///< in the plan
  bool waits = false;                      ///< for its peers
  double since_progress_seconds = 0;       ///< since its last step or change of state
  double silent_seconds = 0;               ///< since the worker itself spoke
};

class ProgressWatch {
 public:
  /// progress_seconds: launch.progress_seconds; 0: none.
  explicit ProgressWatch(double progress_seconds) : progress_seconds_(progress_seconds) {}

  /// An attempt of `ranks` workers starts. What was learnt stays.
  void Begin(size_t ranks, MonitorTime now);
  void Heard(const WorkerBeat& beat, MonitorTime now);
  void Ended(int rank) { ranks_[static_cast<size_t>(rank)].ended = true; }
  /// For so long nobody was listened to: it counts for nothing.
  void Shift(std::chrono::steady_clock::duration gap);

  using Applies = std::function<bool(int rank)>;
  /// Ranks that have not moved for `part` of their limit (1: the stalled ones), of those that run and for which
  /// `applies` holds.
  std::vector<int> Stalled(MonitorTime now, const Applies& applies, double part = 1) const;
  /// Seconds after which a rank in `state` that does not move is stalled.
  double Limit(const std::string& state) const;

  /// Who holds the others up, of those that run and for which `applies` holds: the fewest steps; of those, one whose
  /// process is silent (stopped, or in the kernel), then one that does not wait for its peers, then the earliest action
  /// of the plan, then who has not moved for longest. -1: nobody runs.
  int Laggard(const Applies& applies) const;

  /// "at step 6, state training, action 57 BackwardWeight layer3.mlp mb1, not heard for 45 s"
  std::string Describe(int rank) const;
  /// Seconds since the rank moved.
  double Unmoved(int rank, MonitorTime now) const;
  const WorkerBeat& last(int rank) const { return ranks_[static_cast<size_t>(rank)].beat; }

 private:
  struct Rank {
    WorkerBeat beat;
    bool ended = false;
    MonitorTime moved_at, progress_at;  ///< progress: a step or a change of state
  };
  /// The newest durations of a phase, in seconds.
  struct History {
    std::vector<double> seconds;
    size_t next = 0;
  };

  void Learn(const std::string& state, double seconds);
  static bool Worse(const Rank& a, const Rank& b);

  double progress_seconds_;
  std::vector<Rank> ranks_;
  std::map<std::string, History> learnt_;  ///< by state
};

}  // namespace ds
