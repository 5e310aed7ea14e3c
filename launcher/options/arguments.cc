#include "launcher/options/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "runtime/base/error.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/text.h"

namespace ds {

namespace {

/// Which of the arguments that nothing takes is wrong, and what was meant.
std::string UnknownArgument(const CLI::App& app, const std::vector<std::string>& arguments) {
  const std::vector<std::string> left = app.remaining();
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& argument : arguments) {  // in the order that they were written in
    if (!argument.starts_with('-') || std::find(left.begin(), left.end(), argument) == left.end()) continue;
    const std::string name = argument.substr(0, argument.find('='));
    return "unknown option " + Shown(name) + "; the nearest is " + Nearest(name, names);
  }
  for (const std::string& argument : arguments)
    if (std::find(left.begin(), left.end(), argument) != left.end())
      return "`" + Shown(argument) + "` is one argument too many";
  return "an argument is too many";
}

}  // namespace

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
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    FlushStandardOutput();
    return 0;
  } catch (const CLI::ExtrasError&) {
    throw UsageError(UnknownArgument(app, arguments) + "\n" + app.get_name() + " --help explains every option");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "\n" + app.get_name() + " --help explains every option");
  }
  return std::nullopt;
}

}  // namespace ds
