// ds-worker: trains one rank. Communicators go over Gloo, with rendezvous through the agent.
#include "kernels/cpu_features.h"
#include "runtime/base/error.h"
#include "runtime/comm/communicator.h"
#include "runtime/job/job_spec.h"
#include "runtime/train/train.h"
#include "runtime/worker/worker.h"

namespace ds {
namespace {

/// A rank must reach its peers before the launcher would call the job stuck; 0 (never) leaves the library's limit.
std::chrono::milliseconds CollectiveTimeout(const JobSpec& spec) {
  const double seconds = spec.launch.progress_seconds;
  return seconds > 0 ? std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)) : std::chrono::hours(24);
}

TrainResult TrainRank(const WorkerAssignment& me, Reporter& reporter, Store& store) {
  if (const char* missing = MissingCpuFeature())
    throw Error(ExitCode::preflight,
                std::string("this CPU lacks ") + missing +
                    ", which DeepShard was compiled for; build it with -DDEEPSHARD_CPU_ARCH=x86-64 (slower) for this node");
  const JobSpec spec = ParseJobSpec(me.spec, "job.yaml", me.run_directory, {}, me.size);
  TrainEnvironment environment;
  environment.rank = me.rank;
  environment.size = me.size;
  environment.threads = me.threads;
  environment.run_directory = me.run_directory;
  environment.resume = me.resume;
  environment.attempt = me.attempt;
  environment.reporter = &reporter;
  environment.communicators =
      me.size == 1 ? SingleRankFactory()
                   : GlooFactory({me.rank, me.size, me.interface_address, CollectiveTimeout(spec)}, store);
  return Train(spec, environment);
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) { return ds::WorkerMain(argc, argv, ds::TrainRank); }
