// What a worker without agents does with what its training loop reports: rank 0 writes and prints it, the others send
// rank 0 their events.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/run/run_directory.h"
#include "runtime/run/run_record.h"
#include "runtime/train/train.h"

namespace ds {

class Board;

class StandaloneReporter final : public Reporter {
 public:
  struct Job {
    int rank = 0;
    std::vector<std::string> hosts;  ///< by rank
    int64_t steps = 0, log_every = 10;
  };
  /// `directory`: rank 0's, else null. `board`: null for one rank. `stop` becomes true when the job was asked to stop.
  /// All must outlive the reporter.
  StandaloneReporter(Job job, RunDirectory* directory, Board* board, const std::atomic<bool>& stop);

  void OnState(const std::string& state) override;
  void OnStep(const StepRecord& record) override;
  void OnEvent(const std::string& kind, const std::string& message) override;
  bool StopRequested() override { return stop_; }

  /// Of this rank; its steps are those of every rank.
  RunRecord& record() { return record_; }
  /// Writes what the other ranks sent.
  void TakeEvents();
  /// Of a checkpoint that was written after the last step.
  void TellCheckpoint();

 private:
  void Write(int rank, int64_t unix_ns, const std::string& kind, const std::string& message);

  const Job job_;
  RunDirectory* const directory_;
  Board* const board_;
  const std::atomic<bool>& stop_;
  RunRecord record_;
  /// The newest checkpoint, when and where: it is told when it is written, a moment before its step is, and is shown
  /// after that.
  std::optional<std::pair<int64_t, std::string>> checkpoint_;
  std::vector<int> taken_;  ///< events of each rank that were written
  int sent_ = 0;
  std::chrono::steady_clock::time_point looked_{};
};

}  // namespace ds
