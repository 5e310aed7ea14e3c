// Passes what the training loop reports to the agent: every step record of rank 0, in order; health once a second,
// after the first step, and when a checkpoint was taken: who goes on from it finds the steps before it recorded.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/train/train.h"
#include "runtime/worker/agent_link.h"

namespace ds {

class LinkReporter final : public Reporter {
 public:
  /// `stop`: becomes true when the job was asked to stop. Both must outlive the reporter.
  LinkReporter(AgentLink& link, const std::atomic<bool>& stop);
  ~LinkReporter() override;  ///< sends what is left

  void OnState(const std::string& state) override;
  void OnStep(const StepRecord& record) override;
  void OnEvent(const std::string& kind, const std::string& message) override;
  bool StopRequested() override { return stop_; }

 private:
  void Run();
  void Send();  ///< with the mutex held; steps first, then what was told of them

  AgentLink& link_;
  const std::atomic<bool>& stop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool end_ = false, send_now_ = false, stepped_ = false;
  WorkerStatus status_;
  std::chrono::steady_clock::time_point progress_at_ = std::chrono::steady_clock::now();
  std::vector<StepRecord> steps_;
  std::vector<std::pair<std::string, std::string>> waiting_;  ///< events: kind and message
  std::thread thread_;
};

}  // namespace ds
