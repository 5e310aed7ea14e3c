#include "runtime/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace ds {
namespace {

LogLevel FromEnvironment() {
  const char* value = std::getenv("DS_LOG");
  std::string_view v = value ? value : "";
  if (v == "debug") return LogLevel::debug;
  if (v == "warning") return LogLevel::warning;
  if (v == "error") return LogLevel::error;
  return LogLevel::info;
}

std::atomic<LogLevel>& Level() {
  static std::atomic<LogLevel> level{FromEnvironment()};
  return level;
}

const char* Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug: ";
    case LogLevel::info:
      return "";
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::error:
      return "error: ";
  }
  return "";
}

}  // namespace

void SetLogLevel(LogLevel level) { Level() = level; }
LogLevel GetLogLevel() { return Level(); }

void Log(LogLevel level, const std::string& message) {
  if (level < GetLogLevel()) return;
  std::string line = Prefix(level) + message + "\n";
  const char* p = line.data();
  size_t left = line.size();
  while (left > 0) {
    ssize_t n = ::write(STDERR_FILENO, p, left);
    if (n <= 0) return;  // nobody listens; a log line is not worth dying for
    p += n;
    left -= static_cast<size_t>(n);
  }
}

}  // namespace ds
