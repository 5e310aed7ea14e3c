// A ds-launch that a fault test started, in a folder of its own, and the means to hurt it and to look at what is left.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/value.h"

namespace ds::test {

/// A temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Polls until `condition` holds or `seconds` pass; whether it held.
bool Eventually(double seconds, const std::function<bool()>& condition);

/// Whether somebody who is not root can start the programs under test; needs root to become that somebody. Says why
/// not.
bool OthersMayRun();

struct LaunchSetting {
  std::vector<std::string> arguments;                ///< of ds-launch
  std::map<std::string, std::string> environment{};  ///< beside this process's
  std::string program = "ds-launch";                 ///< in the build tree's bin/
  std::string hosts{};                               ///< text of the file `hosts`; empty: none is written
  std::string shell_prelude{};                       ///< run by sh before ds-launch replaces it; empty: no shell
  bool terminal = false;                             ///< its standard streams are a terminal of its own
  bool shared_output = false;  ///< --output names a folder that other jobs use too: the run is the one its output names
};

/// Writes fake.yaml (job `fake`: `steps` steps of the pretending worker) beside the run directories.
class LaunchedJob {
 public:
  explicit LaunchedJob(LaunchSetting setting, int steps = 1000000);
  ~LaunchedJob();  ///< kills what is left

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  /// Its exit code (128 + n when signal n killed it); fails the test after `seconds`.
  int Wait(double seconds = 20);
  std::string output() const;                ///< both streams
  void Type(const std::string& keys) const;  ///< on its terminal

  // The run directory; each waits until it is there.
  std::string run_directory() const;
  std::string run_id() const;
  bool WaitForStep(int step, double seconds = 15) const;  ///< a line of metrics.jsonl
  std::vector<Value> Lines(const std::string& file) const;
  Value Summary() const;
  bool HasEvent(const std::string& kind) const;
  std::string Log(int rank) const;

  // Processes of the job.
  std::vector<pid_t> Workers() const;  ///< and what they started: everything that carries the job's DS_RUN_ID
  pid_t Worker(int rank) const;
  pid_t Agent(const std::string& host) const;
  std::vector<pid_t> Agents() const;

  /// What should not be there once the job is over: processes, and files below its TMPDIR. Empty: nothing.
  std::vector<std::string> Leftovers() const;
  /// Nothing is left, within `seconds`.
  bool NothingLeft(double seconds = 3) const;

 private:
  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int terminal_ = -1;
  bool shared_output_ = false;
  std::optional<int> exit_code_;
  mutable std::string terminal_text_;
  void DrainTerminal() const;
  std::string FindRun() const;  ///< empty: not there yet
};

/// summary.cause.KEY as text; "null" where it is null.
std::string CauseOf(const Value& summary, const std::string& key);
std::string Text(const Value& value, const std::string& key);

}  // namespace ds::test
