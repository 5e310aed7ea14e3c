#include "launcher/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "runtime/base/error.h"

namespace ds {

std::vector<std::string> NormalisedArguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--")) continue;
    auto end = argument.begin() + static_cast<long>(std::min(argument.find('='), argument.size()));
    std::replace(argument.begin(), end, '_', '-');
    // CLI11 would take the next argument for the value.
    if (end != argument.end() && end + 1 == argument.end()) {
      throw UsageError(argument + ": a value is missing after `=`");
    }
  }
  return arguments;
}

std::optional<int> ParseArguments(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "\n" + app.get_name() + " --help explains every option");
  }
  return std::nullopt;
}

}  // namespace ds
