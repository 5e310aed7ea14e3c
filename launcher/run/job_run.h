// One run of a job, from the run directory to the exit code.
#pragma once

#include "launcher/job/job.h"

namespace ds {

/// Brings agents up, runs the workers, keeps the run directory and the screen, ends everything. Returns the exit code.
/// Throws Error for what is found wrong before anything is started or written. Call on the main thread, which must be
/// the only one.
int RunJob(const Job& job);

}  // namespace ds
