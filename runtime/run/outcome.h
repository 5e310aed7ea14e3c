// How workers and jobs end, as the summary tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ds {

/// The exit code of a ds-worker whose peer failed (EX_TEMPFAIL).
constexpr int kVictimExitCode = 75;

/// Why a job ended other than by completing.
struct Cause {
  std::string kind;  ///< worker_exit, worker_signal, not_finite, loss_scale, node_lost, no_progress, preflight, ...
  std::string host;  ///< empty: none in particular
  int rank = -1;     ///< -1: none in particular
  int signal = 0;    ///< 0: none
  int code = 0;      ///< exit code of the process; 0: none
  std::string message;
};

/// How a worker ended, as its agent tells.
struct WorkerEnd {
  int rank = 0;
  int code = 0;
  int signal = 0;        ///< 0: it exited with `code`
  int agent_signal = 0;  ///< the last signal that we had sent it
  bool victim = false;
  bool completed = false;  ///< it said that it did all its steps
  bool stopped = false;    ///< it said that it ended early because it was asked to
  int stop_signal = 0;     ///< stopped: the signal that asked it; 0: it was told by its peers or by us
  std::string message;     ///< its own account of a failure; empty: none
  int64_t ended_ns =
      0;               ///< when it failed or ended, in nanoseconds by ds-launch's clock as far as that is known; 0: not
  std::string kind{};  ///< of the cause, where it knows better than its exit tells; empty: it does not
};

struct JobOutcome {
  std::string status;  ///< completed, failed, interrupted, preempted
  int exit_code = 0;
  std::optional<Cause> cause;
  std::vector<WorkerEnd> victims;  ///< of the last attempt
};

}  // namespace ds
