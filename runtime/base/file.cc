#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "runtime/base/error.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int kOldLinkSeconds = 60;

/// Closes a descriptor at the end of a scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void WriteAll(int fd, std::string_view bytes, const fs::path& path) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot write " + path.string(), errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

std::string ReadFile(const fs::path& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw SystemError("cannot read " + path.string(), errno);
  std::string bytes;
  char block[1 << 16];
  for (;;) {
    ssize_t n = ::read(file.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("cannot read " + path.string(), errno);
    if (n == 0) return bytes;
    bytes.append(block, static_cast<size_t>(n));
  }
}

void SyncPath(const fs::path& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw SystemError("cannot open " + path.string() + " to sync it", errno);
  if (::fsync(file.fd) != 0) throw SystemError("cannot sync " + path.string(), errno);
}

void WriteFileAtomically(const fs::path& path, std::string_view bytes) {
  fs::path temporary = path.string() + ".tmp." + std::to_string(::getpid());
  {
    ::unlink(temporary.c_str());  // what a killed process left, or somebody put there
    Descriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (file.fd < 0) throw SystemError("cannot create " + temporary.string(), errno);
    try {
      WriteAll(file.fd, bytes, temporary);
      if (::fsync(file.fd) != 0) throw SystemError("cannot sync " + temporary.string(), errno);
    } catch (...) {
      ::unlink(temporary.c_str());
      throw;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    throw SystemError("cannot rename " + temporary.string() + " to " + path.string(), error);
  }
  SyncPath(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void MakeDirectories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw RuntimeError("cannot create folder " + path.string() + ": " + error.message());
  if (!fs::is_directory(path, error)) throw RuntimeError(path.string() + " exists and is not a folder");
}

namespace {

/// What killed processes left of links that they were about to put in the place of `link`. A link lives for a moment,
/// so one of a minute ago is nobody's, on whichever machine its process ran.
void RemoveOldLinks(const fs::path& link) {
  const std::string prefix = link.filename().string() + ".tmp.";
  std::error_code ignored;
  for (fs::directory_iterator i(link.has_parent_path() ? link.parent_path() : fs::path("."), ignored), end;
       !ignored && i != end; i.increment(ignored)) {
    const std::string name = i->path().filename().string();
    struct stat info {};
    if (!name.starts_with(prefix) || ::lstat(i->path().c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) continue;
    if (::time(nullptr) - info.st_mtime > kOldLinkSeconds) ::unlink(i->path().c_str());
  }
}

}  // namespace

void ReplaceSymlink(const fs::path& target, const fs::path& link) {
  RemoveOldLinks(link);
  fs::path temporary = link.string() + ".tmp." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0)
    throw SystemError("cannot create link " + link.string(), errno);
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    throw SystemError("cannot replace link " + link.string(), error);
  }
  SyncPath(link.has_parent_path() ? link.parent_path() : fs::path("."));
}

LineFile::LineFile(const fs::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
  if (fd_ < 0) throw SystemError("cannot open " + path.string(), errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(fd_, -1));
    throw RuntimeError(path.string() + " is not a regular file");
  }
}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

void LineFile::Append(std::string_view line) {
  const off_t end = ::lseek(fd_, 0, SEEK_END);
  try {
    WriteAll(fd_, std::string(line) + "\n", path_);
  } catch (const Error&) {
    // A full disk leaves no half of a line behind; what failed is told either way.
    if (end >= 0) {
      [[maybe_unused]] int ignored = ::ftruncate(fd_, end);
    }
    throw;
  }
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw SystemError("cannot open " + path.string(), errno);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) throw SystemError("cannot stat " + path.string(), errno);
  if (!S_ISREG(info.st_mode)) throw RuntimeError(path.string() + " is not a regular file");
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (map == MAP_FAILED) throw SystemError("cannot map " + path.string(), errno);
  data_ = static_cast<const char*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

}  // namespace ds
