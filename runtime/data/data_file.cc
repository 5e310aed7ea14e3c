#include "runtime/data/data_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/error.h"

namespace ds {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path, int64_t keep) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw SystemError("cannot create " + path.string(), errno);
  if (::ftruncate(fd_, keep) == 0 && ::lseek(fd_, keep, SEEK_SET) == keep) return;
  const int error = errno;
  ::close(fd_);
  throw SystemError("cannot truncate " + path.string(), error);
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::Append(const void* bytes, size_t count) {
  block_.append(static_cast<const char*>(bytes), count);
  if (block_.size() >= kBlockBytes) Flush();
}

void AppendFile::Flush() {
  checksum_.Update(block_.data(), block_.size());
  const char* bytes = block_.data();
  for (size_t left = block_.size(); left > 0;) {
    const ssize_t count = ::write(fd_, bytes, left);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError("cannot write " + path_.string(), errno);
    bytes += count;
    left -= static_cast<size_t>(count);
  }
  block_.clear();
}

void AppendFile::Sync() {
  Flush();
  if (::fsync(fd_) != 0) throw SystemError("cannot sync " + path_.string(), errno);
}

uint64_t AppendFile::TakeChecksum() {
  const uint64_t value = checksum_.Value();
  checksum_ = ChecksumStream();
  return value;
}

RandomFile::RandomFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw SystemError("cannot open " + path.string(), errno);
}

RandomFile::~RandomFile() { ::close(fd_); }

size_t RandomFile::Read(int64_t at, size_t count, void* out) const {
  size_t done = 0;
  while (done < count) {
    const ssize_t n = ::pread(fd_, static_cast<char*>(out) + done, count - done, at + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot read " + path_.string(), errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

void RandomFile::ReadExactly(int64_t at, size_t count, void* out) const {
  if (Read(at, count, out) != count)
    throw RuntimeError(path_.string() + " is cut short: " + std::to_string(count) + " bytes at byte " +
                       std::to_string(at) + " are not there");
}

}  // namespace ds
