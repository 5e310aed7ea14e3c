// Errors as exceptions that carry what went wrong, where, and what to do about it.
//
// Every error that reaches a user is an `Error`. Its kind decides the exit code of the program that reports it
// (docs/job-spec.md, "Exit codes"). Programs catch once, in main, and print `error: ` + what().
#pragma once

#include <stdexcept>
#include <string>

namespace ds {

/// Why a program ends. The value is the exit code.
enum class ExitCode : int {
  ok = 0,
  failure = 1,      ///< something failed while running: I/O, a peer, an internal check
  usage = 2,        ///< the command line, a file or the spec is wrong, or the plan does not fit
  preflight = 3,    ///< a node failed its preflight or could not be reached
  node_lost = 4,    ///< a node or its agent was lost
  no_progress = 5,  ///< no step for longer than launch.progress_seconds
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The user's input is wrong: exit code 2. The message names file, line, key and value where they are known, the
/// reason, and what to do.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

/// Something failed while running: exit code 1.
class RuntimeError : public Error {
 public:
  explicit RuntimeError(const std::string& message) : Error(ExitCode::failure, message) {}
};

/// A RuntimeError with the text of `errno_value` appended: "open /x/y: No such file or directory".
class SystemError : public RuntimeError {
 public:
  SystemError(const std::string& what, int errno_value);
};

}  // namespace ds
