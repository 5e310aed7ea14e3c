// What the mains of the tools share. Includes CLI11: for .cc files only.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/standard_output.h"
#include "runtime/base/text.h"
#include "runtime/base/value.h"

namespace ds {

/// Long flags with underscores are read as if they had dashes, as users of DeepSpeed write them. Values are untouched.
inline std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {  // CLI11 wants them last first
    std::string argument = argv[i];
    if (argument.starts_with("--"))
      for (size_t at = 2; at < argument.size() && argument[at] != '='; ++at)
        if (argument[at] == '_') argument[at] = '-';
    arguments.push_back(argument);
  }
  return arguments;
}

/// The text of a flag's argument, to be read by the rules of runtime/base/number.h; errors name the flag.
inline Value FlagValue(const std::string& text, const char* flag) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.text = text;
  value.where.file = flag;
  return value;
}

/// Calls `handler` on SIGINT and SIGTERM. Waiting for a pipe ends then with EINTR: nothing may come out of it any more.
/// A signal that comes just before the wait begins would not end it, so one follows every second from then on.
inline void OnInterrupt(void (*handler)(int)) {
  static void (*interrupt)(int);
  interrupt = handler;
  struct sigaction action {};
  action.sa_handler = [](int) { ::alarm(1); };
  ::sigaction(SIGALRM, &action, nullptr);
  action.sa_handler = [](int signal) {
    interrupt(signal);
    ::alarm(1);
  };
  for (int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

/// The subcommand that is asked for, and what it has asked of it: the innermost.
inline const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : Innermost(*chosen.back());
}

/// Which of the arguments that nothing takes is wrong, and what was meant; empty: none.
inline std::string UnknownArgument(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  const CLI::App& command = Innermost(app);
  std::vector<std::string> arguments = Arguments(argc, argv), names;
  std::reverse(arguments.begin(), arguments.end());  // as they were written
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& argument : arguments) {
    if (std::find(left.begin(), left.end(), argument) == left.end()) continue;
    if (!argument.starts_with('-')) {
      std::vector<std::string> commands;
      for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
        commands.push_back(one->get_name());
      if (!commands.empty())
        return "unknown command " + Shown(argument) + "; the nearest is " + Nearest(argument, commands);
      return "`" + Shown(argument) + "` is one argument too many";
    }
    const std::string name = argument.substr(0, argument.find('='));
    return "unknown option " + Shown(name) + "; the nearest is " + Nearest(name, names);
  }
  return "";
}

/// Parses and runs the callbacks; prints help, or `error: ` and the reason. Returns the exit code.
inline int RunCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    try {
      app.parse(Arguments(argc, argv));
    } catch (const CLI::CallForHelp& help) {
      app.exit(help);
    } catch (const CLI::CallForAllHelp& help) {
      app.exit(help);
    }
    FlushStandardOutput();
    return 0;
  } catch (const CLI::ParseError& error) {
    // What is required is missing where it was misspelt.
    const bool unknown =
        dynamic_cast<const CLI::ExtrasError*>(&error) || dynamic_cast<const CLI::RequiredError*>(&error);
    std::string why = unknown ? UnknownArgument(app, argc, argv) : "";
    if (why.empty()) why = error.what();
    std::fprintf(stderr, "error: %s\nTry --help.\n", why.c_str());
    return static_cast<int>(ExitCode::usage);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(ExitCode::failure);
  }
}

}  // namespace ds
