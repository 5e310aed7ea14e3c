// The worker's end of its link to the agent: the assignment comes down, health, steps and events go up, and the
// launcher's store is reached through it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/activity.h"
#include "runtime/comm/store.h"
#include "runtime/train/train.h"

namespace ds {

/// What a worker is told to do.
struct WorkerAssignment {
  int rank = 0, size = 1, local_rank = 0, threads = 1;
  int64_t attempt = 1;
  std::optional<int> gpu;  ///< its place in CUDA_VISIBLE_DEVICES; nullopt: a CPU
  std::string interface_address, run_directory, resume;
  std::string spec;     ///< the resolved job spec, YAML
  std::string machine;  ///< the machine file, YAML; empty: none
  /// Makes communicators of host memory, given the longest time that a call waits for a peer. Empty: Gloo's, through
  /// the store.
  std::function<CommunicatorFactory(std::chrono::milliseconds timeout)> communicators{};
};

/// What a worker says of itself once a second.
struct WorkerStatus {
  std::string state;
  int64_t step = 0;
  double since_progress_seconds = 0;
  double tokens_per_second = 0, comm_exposed_ms = 0;
  Activity activity;
};

class AgentLink final : public Store {
 public:
  struct Callbacks {
    std::function<void(bool checkpoint)> on_stop;  ///< asked to end; without a checkpoint: at once
    std::function<void()> on_lost;                 ///< the agent is gone
  };
  /// Connects and waits for the assignment. Throws RuntimeError when the agent cannot be reached.
  AgentLink(const std::string& socket_path, int rank, int64_t attempt, Callbacks callbacks);
  ~AgentLink() override;

  const WorkerAssignment& assignment() const;

  // Any thread; never block.
  void SendStatus(const WorkerStatus& status, const std::vector<StepRecord>& steps);
  void SendEvent(const std::string& kind, const std::string& message);
  /// kind: of the cause (NumericalError::kind); empty: how the process ends tells it.
  /// found_unix_ns: when it failed.
  void SendFailure(const std::string& message, bool victim, const std::string& kind, int64_t found_unix_ns);
  /// `stop_signal`: the signal that asked this worker to stop; 0: none.
  void SendResult(const TrainResult& result, int stop_signal);

  /// Delivers what was sent and ends the link; waits 5 s at most. `on_lost` is not called after this began.
  void Close();

  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
