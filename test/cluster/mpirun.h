// An mpirun that a test started, in a folder of its own.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/value.h"
#include "test/fault/launched_job.h"

namespace ds::test {

class Mpirun {
 public:
  /// `argv` on `ranks` ranks of this machine; 0: without mpirun. `files`: written into the folder first, by name.
  Mpirun(int ranks, std::vector<std::string> argv, std::map<std::string, std::string> files = {},
         std::map<std::string, std::string> environment = {});
  ~Mpirun();  ///< kills what is left

  const std::string& folder() const { return folder_.path(); }
  pid_t pid() const { return pid_; }
  /// Its exit code, 128 + n when signal n killed it; fails the test after `seconds`.
  int Wait(double seconds);
  std::string output() const;

  /// The newest run directory below `runs`; waits for it.
  std::string run_directory() const;
  std::vector<Value> Lines(const std::string& file) const;
  Value Summary() const;
  bool WaitForStep(int step, double seconds = 30) const;

  /// Its ranks' processes, by rank.
  std::map<int, pid_t> Ranks() const;
  /// No process of it lives, within `seconds`.
  bool NothingLeft(double seconds) const;

 private:
  std::vector<pid_t> Processes() const;
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace ds::test
