// The command line of ds-launch.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/job/filter.h"
#include "runtime/job/job_spec.h"

namespace ds {

/// An option that stands for a key of the spec.
struct KeyOption {
  std::string flag, key, value;  ///< "--interface", "launch.interface", "eth0"
};

struct LaunchOptions {
  std::string job_file;              ///< empty: a program is launched
  std::vector<std::string> program;  ///< argv, as given after `--`
  bool module = false;               ///< program[0] is a Python module
  bool no_python = false;            ///< a .py file is executed as it is
  std::string master_address;        ///< of a program; empty: the first node's
  int master_port = 0;               ///< of a program; 0: one that the first node's agent holds
  std::string hostfile;              ///< empty: this machine
  HostFilter filter;
  std::string bootstrap;            ///< empty: the spec's launch.bootstrap
  std::vector<Override> overrides;  ///< in order
  std::vector<KeyOption> key_options;
  std::vector<std::string> exports;  ///< NAME or NAME=VALUE
  std::string output = "runs";
  std::string resume = "never";
  std::vector<std::string> skip_checks;  ///< of the preflight, beside launch.skip_checks
  bool dry_run = false;
  std::string tee, log_ranks;                   ///< ranks, as RankSet reads them; empty: all
  std::string make_identity;                    ///< a folder for a site identity; empty: a job is launched
  std::optional<std::pair<int, int>> plan_for;  ///< nodes, slots a node
  std::string machine;                          ///< a machine file; empty: none, or that of the run that is resumed
};

struct CommandLine {
  std::optional<LaunchOptions> options;  ///< nothing: help or the version was asked for and printed
};

/// Throws UsageError that names the argument.
CommandLine ParseLaunchCommandLine(int argc, char** argv);

}  // namespace ds
