#include "runtime/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

std::string KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

/// A descriptor of this process, which somebody opened for it.
bool IsHandedOver(const std::string& path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

SystemError CannotRead(const std::string& path, int error) {
  return SystemError("cannot read " + Shown(path, 400), error);
}

}  // namespace

std::string ReadInputFile(const std::string& path, size_t most) {
  static std::map<std::string, std::string> pipes;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw CannotRead(path, errno);
  const auto check = [&] {
    if (S_ISREG(info.st_mode) || (S_ISFIFO(info.st_mode) && IsHandedOver(path))) return;
    throw RuntimeError(Shown(path, 400) + " is " + KindOf(info.st_mode) + ", not a regular file");
  };
  check();  // before it is opened: that may already do something to a device
  const bool pipe = S_ISFIFO(info.st_mode);
  if (const auto kept = pipes.find(path); pipe && kept != pipes.end()) return kept->second;
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.fd < 0) throw CannotRead(path, errno);
  if (::fstat(file.fd, &info) != 0) throw CannotRead(path, errno);
  check();                       // what was opened, whatever the name meant a moment before
  ::fcntl(file.fd, F_SETFL, 0);  // who writes the pipe may take a while
  std::string bytes;
  char block[1 << 16];
  for (ssize_t n; (n = ::read(file.fd, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw CannotRead(path, errno);
    bytes.append(block, static_cast<size_t>(n));
    if (bytes.size() > most)
      throw RuntimeError(Shown(path, 400) + " has more than " + std::to_string(most) +
                         " bytes, which no such file needs");
  }
  if (pipe) pipes[path] = bytes;
  return bytes;
}

std::string WhyNoFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "cannot be read: " + std::generic_category().message(errno);
  if (!S_ISREG(info.st_mode)) return "is " + KindOf(info.st_mode) + ", not a regular file";
  if (::access(path.c_str(), R_OK) != 0) return "cannot be read: " + std::generic_category().message(errno);
  return "";
}

}  // namespace ds
