#include "runtime/worker/standalone/options.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/run/prepare.h"

namespace ds {

const char kStandaloneHelp[] =
    "Without agents, for those who want it so, ds-worker runs a job by itself, one process a rank:\n\n"
    "  mpirun -n N ds-worker JOB.yaml     N ranks that Open MPI starts: collectives between CPUs over MPI\n"
    "  srun ds-worker JOB.yaml            the tasks of a SLURM step\n"
    "  ds-worker JOB.yaml                 one rank\n\n"
    "  --set KEY=VALUE      changes a key of the job file, as for ds-launch; later wins\n"
    "  --output DIR         where run directories go: DIR/NAME/RUN-ID (default runs)\n"
    "  --resume R           never (default); auto; a checkpoint or a run directory\n"
    "  --machine FILE       a machine file\n"
    "  --collectives C      auto (default: MPI where mpirun or srun --mpi=pmix started the ranks), mpi, or gloo\n";

bool IsStandalone(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--agent") return false;
  }
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("-")) return true;
    for (std::string_view flag : {"--set", "--output", "--resume", "--machine", "--collectives"}) {
      if (argument == flag || (argument.starts_with(flag) && argument[flag.size()] == '=')) return true;
    }
  }
  return false;
}

StandaloneOptions ParseStandaloneOptions(int argc, char** argv) {
  StandaloneOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    if (!flag.starts_with("-")) {
      if (!options.job_file.empty()) throw UsageError("two job files: " + options.job_file + " and " + flag);
      options.job_file = flag;
      continue;
    }
    const size_t equals = flag.find('=');
    std::string value;
    if (equals != std::string::npos) {
      value = flag.substr(equals + 1);
      flag.resize(equals);
    }
    if (flag.starts_with("--")) std::replace(flag.begin(), flag.end(), '_', '-');
    const std::vector<std::string> known = {"--set", "--output", "--resume", "--machine", "--collectives"};
    if (std::find(known.begin(), known.end(), flag) == known.end()) {
      throw UsageError("unknown option " + Shown(flag) + "; the nearest is " + Nearest(flag, known) +
                       "\nds-worker --help explains every option");
    }
    if (equals == std::string::npos) {
      if (i + 1 >= argc) throw UsageError(flag + ": a value is missing");
      value = argv[++i];
    }
    if (value.empty()) throw UsageError(flag + ": a value is missing");
    if (flag == "--set") options.overrides.push_back(ParseOverride(value));
    if (flag == "--output") options.output = value;
    if (flag == "--resume") options.resume = value;
    if (flag == "--machine") options.machine = value;
    if (flag == "--collectives") options.collectives = value;
  }
  if (options.job_file.empty()) throw UsageError(std::string("which job? Give a job file\n\n") + kStandaloneHelp);
  if (options.collectives != "auto" && options.collectives != "mpi" && options.collectives != "gloo")
    throw UsageError("--collectives " + options.collectives + ": expected auto, mpi or gloo");
  return options;
}

}  // namespace ds
