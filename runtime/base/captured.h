// A short command, run to its end, and what it printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/process.h"

namespace ds {

struct Captured {
  ProcessEnd end;
  std::string out, error;  ///< standard output and error, the first MiB of each
};

/// Runs `argv` with this process's environment and /dev/null as standard input, in a session of its own. Nothing where
/// it cannot be started, or has not ended after `seconds` (it is killed then). Throws SystemError where there are no
/// pipes.
std::optional<Captured> RunCaptured(const std::vector<std::string>& argv, double seconds);

}  // namespace ds
