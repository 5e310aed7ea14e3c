// Processes: starting, watching, and making sure that none is left.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

struct SpawnOptions {
  std::vector<std::string> argv;         ///< argv[0]: a path, or a name to look for in PATH
  std::vector<std::string> environment;  ///< "NAME=VALUE" bytes, the whole of it
  std::string working_directory;         ///< empty: this process's
  int stdin_fd = -1;                     ///< -1: /dev/null
  int stdout_fd = -1, stderr_fd = -1;    ///< -1: this process's
  bool new_session = false;              ///< setsid: out of reach of the terminal's Ctrl-C
  bool new_group = false;                ///< a process group of its own
  /// Sent to the child when the *thread* that called Spawn ends (prctl(2)); 0: none.
  int parent_death_signal = 0;
};

/// Forks and executes; safe in a program with threads (between the two only async-signal-safe calls). Every other
/// descriptor is closed in the child, signals are unblocked and have their default effect. Throws SystemError that
/// names the program when it cannot be executed.
pid_t Spawn(const SpawnOptions& options);

/// The environment that this process was started with, byte for byte, whatever was set since.
const std::vector<std::string>& InheritedEnvironment();

/// Replaces or adds `name` in a list of "NAME=VALUE".
void SetVariable(std::vector<std::string>& environment, std::string_view name, std::string_view value);

/// How a process ended.
struct ProcessEnd {
  int code = 0;
  int signal = 0;  ///< 0: it exited with `code`
};

/// "exit code 7", "killed by signal 9 (SIGKILL)"
std::string EndText(const ProcessEnd& end);

/// Reaps children as they end, each told at once, none lost. Calls back on its own thread.
class ProcessWatcher {
 public:
  using OnEnd = std::function<void(pid_t, ProcessEnd)>;
  explicit ProcessWatcher(OnEnd on_end);
  ~ProcessWatcher();
  /// `pid`: a child of this process that nobody else waits for; ended where it cannot be watched (SystemError).
  void Watch(pid_t pid);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Identifies a process beyond reuse of its number.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_time = 0;  ///< ticks since boot, /proc/PID/stat field 22
  bool operator==(const ProcessId&) const = default;
};
/// start_time is 0 when there is no such process.
ProcessId IdentifyProcess(pid_t pid);

/// Whether that process runs still; a zombie does not.
bool IsRunning(const ProcessId& id);

/// Every living descendant of this process, zombies left out.
std::vector<ProcessId> Descendants();

/// Orphaned descendants become children of this process instead of init's (prctl PR_SET_CHILD_SUBREAPER).
void BecomeSubreaper();

/// SIGKILLs every descendant that is not in `spared` nor below one that is, and reaps, until none is left or
/// `patience_seconds` pass. Returns how many were killed. Requires BecomeSubreaper(); reaps children that are watched.
int KillDescendants(const std::vector<ProcessId>& spared, double patience_seconds);

/// The folder of the running executable.
std::string ExecutableFolder();

/// The path of this program. Unlike /proc/self/exe, it gives a process that executes it the program's name.
std::string ExecutablePath();

}  // namespace ds
