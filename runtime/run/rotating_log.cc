#include "runtime/run/rotating_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

fs::path Older(const fs::path& path, int64_t age) { return path.string() + "." + std::to_string(age); }

/// Where `from` is absent there is nothing to do.
void Rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0 && errno != ENOENT)
    throw SystemError("cannot rename the log " + from.string() + " to " + to.string(), errno);
}

}  // namespace

RotatingLog::RotatingLog(fs::path path, LogRotation rotation)
    : path_(std::move(path)), rotation_(rotation), file_(std::make_unique<LineFile>(path_)) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path_, error);
  size_ = error ? 0 : static_cast<int64_t>(size);
}

void RotatingLog::Append(std::string_view line) {
  const int64_t bytes = static_cast<int64_t>(line.size()) + 1;
  if (rotation_.bytes > 0 && size_ > 0 && size_ + bytes > rotation_.bytes) Rotate();
  file_->Append(line);
  size_ += bytes;
}

void RotatingLog::Rotate() {
  // Oldest first: whenever this is killed, no line is in two files, and the newest are under their names.
  for (int64_t age = rotation_.keep - 1; age >= 1; --age) Rename(Older(path_, age), Older(path_, age + 1));
  if (rotation_.keep > 0) {
    Rename(path_, Older(path_, 1));
  } else if (::unlink(path_.c_str()) != 0 && errno != ENOENT) {
    throw SystemError("cannot remove the log " + path_.string(), errno);
  }
  file_ = std::make_unique<LineFile>(path_);
  size_ = 0;
}

}  // namespace ds
