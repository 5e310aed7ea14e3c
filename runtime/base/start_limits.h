// Limits of this process without which gRPC and its threads do not start, hang or abort: looked at before they begin.
#pragma once

#include <string>

namespace ds {

/// What a program that talks over gRPC needs at least.
struct StartNeeds {
  unsigned long open_files = 64;            ///< RLIMIT_NOFILE, the hard limit: the soft one is raised to so many
  unsigned long address_space = 1ul << 30;  ///< RLIMIT_AS, bytes: stacks and arenas of threads are reserved there
  int threads = 32;                         ///< that can be started: RLIMIT_NPROC, pids.max of the control groups
};

/// Throws Error (exit code 3) that names the limit, what is allowed, what `program` needs and what to do. Threads are
/// tried rather than counted: for a moment so many run. Call it before gRPC starts, and where nothing depends on this
/// process having one thread.
void CheckStartLimits(const std::string& program, const StartNeeds& needs = {});

}  // namespace ds
