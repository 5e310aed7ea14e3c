// What variables the workers get beside those of their node, and where each comes from.
//
// Later ones win: the node's own environment (the agent's); what ds-launch sets unless it is set there; ds-launch's
// variables that begin with NCCL, UCX, MV2, MLFLOW or PYTHON (as DeepSpeed hands them on); `.deepspeed_env` of the home
// folder; that of the working directory; launch.env; --export; and what tells a worker its place, which nobody may set.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/options/launch_options.h"
#include "runtime/job/job_spec.h"

namespace ds {

struct VariableSource {
  std::string name;  ///< "--export", "launch.env", a file, ...
  std::vector<std::pair<std::string, std::string>> variables;
};

/// In ascending order of precedence; sources without variables are left out. Throws UsageError that names source and
/// variable, never a value: a file that cannot be read, a name that ds-launch sets itself, a variable that no process
/// can be given (over 128 KiB).
std::vector<VariableSource> VariablesForWorkers(const JobSpec& spec, const LaunchOptions& options);

/// What a program's workers are told of their place and of each other (docs/operations.md has the table).
const std::vector<std::string>& PlaceVariables();

/// The sources as --dry-run shows them: names alone.
std::string DescribeVariables(const std::vector<VariableSource>& sources, bool program);

}  // namespace ds
