// The resident agent, `ds-agent --daemon`: it listens for one user's launchers and starts an agent of its own for each
// job that one hands over, so that job and daemon are separate processes. An agent ends with the launcher's stream, and
// with the daemon.
#pragma once

#include <string>

#include "runtime/site/site.h"

namespace ds {

/// Until a signal, or the idle policy, ends it. Call on the main thread, which forks the agents and outlives them.
/// Returns the exit code. Throws Error where it cannot listen or its identity does not hold.
int RunDaemon(const DaemonConfig& config);

}  // namespace ds
