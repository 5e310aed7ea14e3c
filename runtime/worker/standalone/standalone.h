// A training job without agents and launcher: ranks that mpirun or srun started, or one alone, meet, train and end by
// themselves. Rank 0 writes the run directory.
#pragma once

#include "runtime/worker/worker.h"

namespace ds {

/// main of `ds-worker JOB.yaml ...`. Returns the exit code, or ends the process: 0; what the job's first failure gives,
/// the same on every rank that can know it; 128 + n where signal n asked the job to stop.
int StandaloneMain(int argc, char** argv, const WorkerJob& job);

}  // namespace ds
