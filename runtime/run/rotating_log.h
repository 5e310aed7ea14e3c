// A log file that does not grow beyond a limit: PATH, and before it PATH.1 (newer) to PATH.KEEP (older).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "runtime/base/file.h"

namespace ds {

struct LogRotation {
  int64_t bytes = 0;  ///< of one file; 0: no limit
  int64_t keep = 4;   ///< older files that stay
};

/// Appends whole lines; a line longer than the limit has a file of its own. Owned by one thread. Throws SystemError
/// that names the path.
class RotatingLog {
 public:
  RotatingLog(std::filesystem::path path, LogRotation rotation);  ///< goes on with a file that is there
  void Append(std::string_view line);                             ///< adds the newline

 private:
  void Rotate();

  std::filesystem::path path_;
  LogRotation rotation_;
  std::unique_ptr<LineFile> file_;
  int64_t size_ = 0;
};

}  // namespace ds
