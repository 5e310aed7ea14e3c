// ds-convert: prepares data; shows, checks and exports what DeepShard wrote.
#include "runtime/tools/convert.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/tools/command_line.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Prepares data for DeepShard, and shows, checks and exports what it wrote.\n"
      "`ds-convert COMMAND --help` explains a command.");
  app.require_subcommand(1);
  ds::AddDataCommand(app);
  ds::AddInspectCommand(app);
  ds::AddVerifyCommand(app);
  ds::AddExportCommand(app);
  return ds::RunCommandLine(app, argc, argv);
}
