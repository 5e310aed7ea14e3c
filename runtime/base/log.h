// Log lines on standard error: one write a line, so that lines of several processes never splice.
#pragma once

#include <string>

namespace ds {

enum class LogLevel { debug, info, warning, error };

/// Lines below this level are dropped. Default: info, or the value of DS_LOG (debug, info, warning, error).
void SetLogLevel(LogLevel level);
LogLevel GetLogLevel();

/// Writes `LEVEL message\n` ("info" lines carry no prefix) with one write(2). Thread-safe.
void Log(LogLevel level, const std::string& message);
inline void LogDebug(const std::string& m) { Log(LogLevel::debug, m); }
inline void LogInfo(const std::string& m) { Log(LogLevel::info, m); }
inline void LogWarning(const std::string& m) { Log(LogLevel::warning, m); }
inline void LogError(const std::string& m) { Log(LogLevel::error, m); }

}  // namespace ds
