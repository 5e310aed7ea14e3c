// What a rank is at, for those who ask why it makes no progress: which actions of its plan run, and whether they wait
// for peers. Told by executors and communicators, asked by the thread that reports health.
//
// One plan is told of at a time and a process; where ranks share a process (tests) they overwrite each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ds {

struct Activity {
  std::string action;             ///< of the plan, as it prints; empty: between steps, or no plan runs
  std::optional<uint32_t> index;  ///< of that action in the plan
  bool waits = false;             ///< all that runs is in calls that wait for peers
};

/// Of the actions that run, the one that the step waits for: the first that does not wait for peers, else the first.
Activity CurrentActivity();

/// While it lives, a plan runs whose actions `describe` names. `describe` may be called from any thread.
class RunningPlan {
 public:
  explicit RunningPlan(std::function<std::string(size_t)> describe);
  ~RunningPlan();
  RunningPlan(const RunningPlan&) = delete;
  RunningPlan& operator=(const RunningPlan&) = delete;
};

inline constexpr int kActivityStreams = 16;

/// While it lives, the calling thread runs action `index` of the plan on `stream` (below kActivityStreams), alone
/// there.
class RunningAction {
 public:
  RunningAction(int stream, size_t index) noexcept;
  ~RunningAction();
  RunningAction(const RunningAction&) = delete;
  RunningAction& operator=(const RunningAction&) = delete;
};

/// While it lives, the calling thread waits for peers.
class WaitsForPeers {
 public:
  WaitsForPeers() noexcept;
  ~WaitsForPeers();
  WaitsForPeers(const WaitsForPeers&) = delete;
  WaitsForPeers& operator=(const WaitsForPeers&) = delete;
};

}  // namespace ds
