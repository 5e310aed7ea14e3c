// What the mains of the tools share. Includes CLI11: for .cc files only.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/base/error.h"
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

/// Parses and runs the callbacks; prints help, or `error: ` and the reason. Returns the exit code.
inline int RunCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(Arguments(argc, argv));
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForAllHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "error: %s\nTry --help.\n", error.what());
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
