// The command line of a worker without agents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

struct StandaloneOptions {
  std::string job_file;
  std::vector<Override> overrides;  ///< in order
  std::string output = "runs";
  std::string resume = "never";
  std::string machine;               ///< a machine file; empty: none, or that of the run that is resumed
  std::string collectives = "auto";  ///< auto, mpi, gloo
};

/// Whether this is a command line of a worker without agents: one that names a job file.
bool IsStandalone(int argc, char** argv);

/// Throws UsageError that names the argument.
StandaloneOptions ParseStandaloneOptions(int argc, char** argv);

/// For --help.
extern const char kStandaloneHelp[];

}  // namespace ds
