// One node's part of a job: facts up, workers started, what they say passed on, their ends reported at once, and
// nothing left running when the job, or the launcher, is gone.
#pragma once

#include <memory>

namespace deepshard::v1 {
class Bootstrap;
}

namespace ds {

struct AgentOptions {
  int input_fd = -1;  ///< a stream with whose end the agent ends too; -1: none
  /// Once it has joined, signals are left to the launcher to act on. For nodes whose resource manager signals launcher,
  /// agents and workers all at once (SLURM, at a time limit): workers are to end with a checkpoint.
  bool leave_signals = false;
};

class Agent {
 public:
  explicit Agent(const deepshard::v1::Bootstrap& bootstrap, const AgentOptions& options = {});
  ~Agent();

  /// From joining to the end. Call on the main thread, which forks the workers and outlives them. Returns the exit
  /// code: 0 when the launcher ended the job, 1 when it was lost. Throws Error(ExitCode::preflight) when not let in.
  int Run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
