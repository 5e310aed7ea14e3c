// ds-convert: prepares data; shows, checks and exports what DeepShard wrote.
#include "runtime/tools/convert.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/tools/command_line.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Prepares data for DeepShard, and shows, checks and exports what it wrote.\n"
      "`ds-convert COMMAND --help` explains a command.",
      "ds-convert");
  app.require_subcommand(0, 1);  // not (1): a misspelt command is to be named
  ds::AddDataCommand(app);
  ds::AddTokenizerCommand(app);
  ds::AddInspectCommand(app);
  ds::AddVerifyCommand(app);
  ds::AddExportCommand(app);
  app.callback([&] {
    if (app.get_subcommands().empty())
      throw ds::UsageError("a command is wanted: data, tokenizer, inspect, verify or export");
  });
  return ds::RunCommandLine(app, argc, argv);
}
