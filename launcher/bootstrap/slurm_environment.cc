#include "launcher/bootstrap/slurm_environment.h"

#include <algorithm>
#include <string_view>

namespace ds {
namespace {

/// Input variables of srun (its manual page, versions 20.11 to 24.05) that change how a step is laid out, bound, fed,
/// or ended.
constexpr std::string_view kOptions[] = {
    "SLURM_BCAST",
    "SLURM_COMPRESS",
    "SLURM_CORE_SPEC",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_CPU_FREQ_REQ",
    "SLURM_DEBUG",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_EPILOG",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_GPU_FREQ",
    "SLURM_GRES",
    "SLURM_GRES_FLAGS",
    "SLURM_HINT",
    "SLURM_HOSTFILE",
    "SLURM_IMMEDIATE",
    "SLURM_JOB_NAME",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_LABELIO",
    "SLURM_MEM_BIND",
    "SLURM_MEM_BIND_LIST",
    "SLURM_MEM_BIND_TYPE",
    "SLURM_MEM_BIND_PREFER",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_MPI_TYPE",
    "SLURM_MULTI_PROG",
    "SLURM_NETWORK",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_NO_KILL",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_TRES",
    "SLURM_OPEN_MODE",
    "SLURM_OVERCOMMIT",
    "SLURM_OVERLAP",
    "SLURM_PROFILE",
    "SLURM_PROLOG",
    "SLURM_REMOTE_CWD",
    "SLURM_RESV_PORTS",
    "SLURM_SPREAD_JOB",
    "SLURM_SRUN_MULTI",
    "SLURM_STDERRMODE",
    "SLURM_STDINMODE",
    "SLURM_STDOUTMODE",
    "SLURM_STEP_GRES",
    "SLURM_TASK_EPILOG",
    "SLURM_TASK_PROLOG",
    "SLURM_TEST_EXEC",
    "SLURM_THREADS",
    "SLURM_THREADS_PER_CORE",
    "SLURM_THREAD_SPEC",
    "SLURM_TIMELIMIT",
    "SLURM_TRES_BIND",
    "SLURM_TRES_PER_TASK",
    "SLURM_UNBUFFEREDIO",
    "SLURM_USE_MIN_NODES",
    "SLURM_WAIT",
    "SLURM_WHOLE",
    "SLURM_WORKING_DIR",
    "SRUN_CONTAINER",
    "SRUN_CPUS_PER_TASK",
    "SRUN_DEBUG",
    "SRUN_ERROR",
    "SRUN_EXPORT_ENV",
    "SRUN_INPUT",
    "SRUN_OUTPUT",
    "SRUN_SEGMENT_SIZE",
};

}  // namespace

std::vector<std::string> SrunEnvironment(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& variable) {
    const std::string_view name = std::string_view(variable).substr(0, variable.find('='));
    return std::find(std::begin(kOptions), std::end(kOptions), name) != std::end(kOptions);
  });
  return environment;
}

}  // namespace ds
