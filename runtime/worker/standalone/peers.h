// The ranks of a job that no launcher watches watch each other: a rank that fails says so and why, one that is lost is
// noticed by its connections.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/store.h"
#include "runtime/run/outcome.h"

namespace ds {

class GlooGroup;

class Peers {
 public:
  /// Collective. `hosts`: by rank. `on_failure` is told when Await has an answer, on a thread that must go on at once.
  Peers(int rank, std::vector<std::string> hosts, const std::string& interface_address, Store& store,
        std::chrono::milliseconds timeout, std::function<void()> on_failure);
  ~Peers();

  /// This rank failed by itself: the others learn of it, unless one of them failed first.
  void Tell(const Cause& cause);
  /// The first failure that a rank told, or the first rank that was lost (kind worker_lost, code kVictimExitCode).
  std::optional<Cause> Await(std::chrono::milliseconds timeout);

  /// Every rank's number; collective. Throws CommunicatorAborted.
  std::vector<int64_t> Gather(int64_t own);

 private:
  void Failed(const std::string& reason);

  const std::vector<std::string> hosts_;
  const std::function<void()> on_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Cause> cause_;
  std::unique_ptr<GlooGroup> group_;  ///< last: its thread uses the rest. Null: one rank
};

}  // namespace ds
