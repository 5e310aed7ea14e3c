// The life of a worker process around its training job: link up, be assigned, run, say how it ended.
#pragma once

#include <functional>
#include <string>

#include "runtime/train/train.h"
#include "runtime/worker/agent_link.h"

namespace ds {

/// Exit code of a worker that ended because a peer or the agent did (EX_TEMPFAIL): a victim, not the cause.
constexpr int kVictimExit = 75;

/// The job of one rank: ds-worker trains; a test may pretend to.
using WorkerJob = std::function<TrainResult(const WorkerAssignment&, Reporter&, Store&)>;

/// main of a worker program: `PROGRAM --agent SOCKET --rank N [--attempt N]`. Returns the exit code: 0; the code of the
/// Error that left the job; kVictimExit for CommunicatorAborted. SIGTERM asks the job to stop; a lost agent, or an
/// order to abandon the step, ends the process within 2 s.
int WorkerMain(int argc, char** argv, const WorkerJob& job);

}  // namespace ds
