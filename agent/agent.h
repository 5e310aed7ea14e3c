// One node's part of a job: facts up, workers started, what they say passed on, their ends reported at once, and
// nothing left running when the job, or the launcher, is gone.
#pragma once

#include <memory>

namespace deepshard::v1 {
class Bootstrap;
}

namespace ds {

class Agent {
 public:
  /// `input_fd`: a stream with whose end the agent ends too; -1: none.
  explicit Agent(const deepshard::v1::Bootstrap& bootstrap, int input_fd = -1);
  ~Agent();

  /// From joining to the end. Call on the main thread, which forks the workers and outlives them. Returns the exit
  /// code: 0 when the launcher ended the job, 1 when it was lost. Throws Error(ExitCode::preflight) when not let in.
  int Run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
