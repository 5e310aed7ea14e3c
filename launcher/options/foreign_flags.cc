#include "launcher/options/foreign_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "runtime/base/error.h"

namespace ds {
namespace {

struct ForeignFlag {
  const char* flag;
  const char* instead;
};

// DeepSpeed's launcher (`deepspeed --help`), then torchrun's.
constexpr ForeignFlag kFlags[] = {
    {"--launcher", "write --bootstrap local, ssh, slurm, mpi or daemon (pdsh: ssh; openmpi, mpich and others: mpi)"},
    {"--launcher-args", "nothing is handed on to ssh, srun or mpirun; configure them by their own files and variables"},
    {"--node-rank",
     "ds-launch starts the agents of all nodes itself; run it once, with --hostfile, and leave this out"},
    {"--no-ssh", "ds-launch starts the agents of all nodes itself; run it once, and leave this out"},
    {"--no-ssh-check", "write --skip-check reachability"},
    {"--force-multi", "one node is launched as many are; leave this out"},
    {"--save-pid", "`echo $$` before `exec ds-launch` tells its process id; leave this out"},
    {"--enable-each-rank-log", "every rank has a log, logs/rank-N.log in the run directory; --output DIR says where"},
    {"--bind-cores-to-rank", "write --bind cores"},
    {"--bind-core-list", "write --bind cores, and start ds-launch under taskset(1) to leave cores out"},
    {"--venv-script", "no shell runs on the nodes; activate the environment before ds-launch, and --export PATH"},
    {"--autotuning", "nothing is tuned by trials; plans are priced before a run (--dry-run)"},
    {"--elastic-training", "write --set launch.min_nodes=N"},
    {"--min-elastic-nodes", "write --set launch.min_nodes=N"},
    {"--max-elastic-nodes", "a job never has more nodes than it began with; leave this out"},
    {"--log-level", "write DS_LOG=debug, info, warning or error before ds-launch"},
    {"--rdzv-backend", "ranks are given out by ds-launch, without a rendezvous; leave this out"},
    {"--rdzv-endpoint", "ranks are given out by ds-launch, without a rendezvous; leave this out"},
    {"--rdzv-id", "ranks are given out by ds-launch, without a rendezvous; leave this out"},
    {"--rdzv-conf", "ranks are given out by ds-launch, without a rendezvous; leave this out"},
    {"--standalone", "without --hostfile the job runs on this machine; leave this out"},
    {"--max-restarts", "write --set launch.restarts=N"},
    {"--monitor-interval", "the end of a process is told at once; leave this out"},
    {"--start-method", "workers are always started by fork and exec; leave this out"},
    {"--role", "write --export ROLE_NAME=NAME"},
    {"--run-path", "write `-- python3 FILE`"},
    {"--log-dir", "write --output DIR; logs are in logs/ of the run directory"},
    {"--redirects", "every rank has a log, logs/rank-N.log, of both streams; --tee says which ranks the screen shows"},
    {"--local-ranks-filter", "write --tee RANKS, which are the job's"},
    {"--local-addr", "agents are reached by the addresses of the hostfile; write these there"},
    {"--virtual-local-rank", "LOCAL_RANK counts a node's workers, and CUDA_VISIBLE_DEVICES names all its GPUs"},
};

}  // namespace

void RefuseForeignFlags(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    const std::string flag = argument.substr(0, argument.find('='));
    for (const ForeignFlag& foreign : kFlags) {
      if (flag == foreign.flag && !app.get_option_no_throw(flag)) throw UsageError(flag + ": " + foreign.instead);
    }
  }
}

}  // namespace ds
