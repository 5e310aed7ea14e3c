// What a job needs of its nodes, for the preflight.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/job.h"
#include "launcher/nodes/preflight.h"

namespace ds {

/// `run_directory`: where its checkpoints go.
PreflightNeeds NeedsOf(const Job& job, const std::string& run_directory);

/// Bytes of one checkpoint: every parameter in fp32, and its optimizer's moments.
int64_t CheckpointBytes(const JobSpec& spec);

/// Checkpoints that lie in the run directory at a time, the one being written counted.
int64_t CheckpointsAtATime(const JobSpec& spec);

/// What this process's own limit of open files (hard, `limit`) does not allow of a job: a log a rank, a connection and
/// a pipe or two an agent. Empty: nothing.
std::string LauncherFilesTrouble(int ranks, size_t nodes, uint64_t limit);

}  // namespace ds
