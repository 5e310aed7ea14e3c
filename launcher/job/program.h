// Programs that are not ours, started by `ds-launch -- PROGRAM ARGS`.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/launch_options.h"

namespace ds {

/// The command line of a worker, byte for byte. A PROGRAM whose name ends in .py is run by `python3 -u`, or by the
/// interpreter that PYTHON_EXEC names, as torchrun and DeepSpeed run it, unless --no-python is given; with --module it
/// is a Python module (`-m`).
std::vector<std::string> ProgramArgv(const LaunchOptions& options);

/// What the run is called unless job.name says: the program's file name, or the module.
std::string ProgramName(const LaunchOptions& options);

}  // namespace ds
