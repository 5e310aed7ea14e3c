// The command line of `ds-agent --daemon`.
#pragma once

namespace ds {

/// Runs the daemon; prints errors. Returns the exit code. First thing in main: before any thread.
int DaemonMain(int argc, char** argv);

}  // namespace ds
