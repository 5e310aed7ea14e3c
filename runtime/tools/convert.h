// The commands of ds-convert, one a file: convert_NAME.cc. Each adds its subcommand, whose callback does the work and
// throws Error.
#pragma once

namespace CLI {
class App;
}

namespace ds {

void AddDataCommand(CLI::App& app);
void AddTokenizerCommand(CLI::App& app);
void AddInspectCommand(CLI::App& app);
void AddVerifyCommand(CLI::App& app);
void AddExportCommand(CLI::App& app);

}  // namespace ds
