// ds-worker: trains one rank. Communicators go over Gloo, and over NCCL between GPUs, with rendezvous through the
// agent; where MPI started the ranks, over MPI.
#include <cstdio>
#include <cstring>

#include "kernels/cpu_features.h"
#include "kernels/gpu.h"
#include "runtime/base/error.h"
#include "runtime/base/nvml.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/job/job_spec.h"
#include "runtime/train/train.h"
#include "runtime/worker/standalone/options.h"
#include "runtime/worker/standalone/standalone.h"
#include "runtime/worker/worker.h"

namespace {

/// A collective waits for its slowest peer; the launcher, which sees all ranks, ends a job without progress. This is
/// the longest that a worker waits when it does not.
std::chrono::milliseconds CollectiveTimeout(const ds::JobSpec& spec) {
  constexpr auto kMargin = std::chrono::minutes(1), kNever = std::chrono::minutes(60 * 24 * 30);
  double progress = spec.launch.progress_seconds;
  if (progress <= 0) return kNever;
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(progress)) + kMargin;
}

/// The rank's GPU; null: it computes on the CPU.
std::unique_ptr<ds::Gpu> GpuOf(const ds::WorkerAssignment& assignment) {
  if (!assignment.gpu) return nullptr;
  if (!ds::HasGpuCode())
    throw ds::Error(ds::ExitCode::preflight,
                    "this node has GPUs, and ds-worker was built without GPU code: build where CMake finds CUDA, NCCL "
                    "and cuDNN, or set training.device: cpu");
  try {
    return ds::OpenGpu(*assignment.gpu);
  } catch (const std::exception& error) {
    throw ds::Error(ds::ExitCode::preflight, std::string("the GPU of rank ") + std::to_string(assignment.rank) +
                                                 " cannot be used: " + error.what());
  }
}

ds::TrainResult TrainRank(const ds::WorkerAssignment& assignment, ds::Reporter& reporter, ds::Store& store) {
  if (const char* missing = ds::MissingCpuFeature()) {
    throw ds::Error(ds::ExitCode::preflight, std::string("this processor lacks ") + missing +
                                                 ", for which the kernels were built: build with another "
                                                 "-DDEEPSHARD_CPU_ARCH, or use another node");
  }
  ds::JobSpec spec = ds::ParseJobSpec(assignment.spec, assignment.run_directory + "/job.yaml", assignment.run_directory,
                                      {}, assignment.size);
  ds::TrainEnvironment environment;
  environment.rank = assignment.rank;
  environment.size = assignment.size;
  environment.threads = assignment.threads;
  environment.run_directory = assignment.run_directory;
  environment.resume = assignment.resume;
  environment.attempt = assignment.attempt;
  if (!assignment.machine.empty())
    environment.machine = ds::ParseMachineFile(assignment.machine, assignment.run_directory + "/machine.yaml");
  environment.reporter = &reporter;
  ds::GlooOptions gloo{assignment.rank, assignment.size, assignment.interface_address, CollectiveTimeout(spec)};
  environment.communicators = assignment.size == 1       ? ds::SingleRankFactory()
                              : assignment.communicators ? assignment.communicators(gloo.timeout)
                                                         : ds::GlooFactory(gloo, store);
  if (assignment.gpu) {
    const std::vector<ds::GpuFacts> gpus = ds::VisibleGpus();
    const size_t own = static_cast<size_t>(*assignment.gpu);
    if (own < gpus.size()) environment.gpu_idle_bytes = gpus[own].memory_used;
  }
  const std::unique_ptr<ds::Gpu> gpu = GpuOf(assignment);
  environment.gpu = gpu.get();
  if (gpu && assignment.size > 1) {
    ds::NcclOptions nccl;
    nccl.rank = assignment.rank;
    nccl.size = assignment.size;
    nccl.device = gpu->device().index;
    nccl.interface_address = assignment.interface_address;
    environment.device_communicators = ds::NcclFactory(nccl, store);
  }
  return ds::Train(spec, environment);
}

}  // namespace

int main(int argc, char** argv) {
  if (ds::IsStandalone(argc, argv)) return ds::StandaloneMain(argc, argv, TrainRank);
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) std::printf("%s\n", ds::kStandaloneHelp);
  return ds::WorkerMain(argc, argv, TrainRank);
}
