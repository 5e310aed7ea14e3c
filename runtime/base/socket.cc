#include "runtime/base/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <random>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ds-agent.";
constexpr size_t kLongestFolder = 70;  // sockaddr_un holds 107 bytes, and a socket's name follows

fs::path TemporaryFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder && *folder == '/' && std::string_view(folder).size() < kLongestFolder ? folder : "/tmp";
}

/// Containers may share /tmp but not process numbers: the namespace is part of the owner's name.
std::string PidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? std::to_string(info.st_ino) : "0";
}

/// "ds-agent.NAMESPACE.PID.START.XXXXXX" of a dead process of this namespace?
bool IsLeftover(const std::string& name, const std::string& pid_namespace) {
  std::string prefix = std::string(kPrefix) + pid_namespace + ".";
  if (!name.starts_with(prefix)) return false;
  const char *p = name.data() + prefix.size(), *end = name.data() + name.size();
  pid_t pid = 0;
  uint64_t start = 0;
  auto [dot, error] = std::from_chars(p, end, pid);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  auto [rest, second_error] = std::from_chars(dot + 1, end, start);
  if (second_error != std::errc() || rest == end || *rest != '.') return false;
  return !IsRunning({pid, start});
}

constexpr const char* kLock = "lock";

/// Holds the folder's lock until this process ends. Whoever finds the file finds it locked.
int LockFolder(const fs::path& folder) {
  const fs::path made = folder / "lock.new";
  const int fd = ::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) throw SystemError("cannot make the file " + made.string(), errno);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 || ::rename(made.c_str(), (folder / kLock).c_str()) != 0) {
    const int error = errno;
    ::close(fd);
    throw SystemError("cannot lock the folder " + folder.string(), error);
  }
  return fd;
}

/// A folder of another process namespace, whose processes have no numbers here: its lock tells whether its owner lives.
bool IsUnlocked(const fs::path& folder) {
  if (!folder.filename().string().starts_with(kPrefix)) return false;
  const int fd = ::open((folder / kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool dead = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return dead;
}

}  // namespace

std::string AddressTowards(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  if (colon == std::string::npos) return "";
  std::string host = host_port.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (::getaddrinfo(host.c_str(), host_port.c_str() + colon + 1, &hints, &found) != 0) return "";
  std::string address;
  for (addrinfo* i = found; i && address.empty(); i = i->ai_next) {
    const int fd = ::socket(i->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST];
    if (::connect(fd, i->ai_addr, i->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) {
      address = text;
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  return address;
}

uint16_t FreeTcpPort() {
  std::mt19937 random(std::random_device{}());
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw SystemError("cannot open a socket", errno);
  for (int tries = 0; tries < 200; ++tries) {
    uint16_t port = static_cast<uint16_t>(20000 + random() % 12000);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      ::close(fd);
      return port;
    }
  }
  ::close(fd);
  throw RuntimeError("no free TCP port among 200 tried from 20000 to 31999");
}

SocketFolder::SocketFolder() {
  RemoveLeftovers();
  ProcessId self = IdentifyProcess(::getpid());
  std::string pattern = (TemporaryFolder() / kPrefix).string() + PidNamespace() + "." + std::to_string(self.pid) + "." +
                        std::to_string(self.start_time) + ".XXXXXX";
  if (!::mkdtemp(pattern.data())) {  // mode 0700
    throw RuntimeError("cannot make a folder for sockets, " + Shown(pattern, 200) + ": " +
                       std::generic_category().message(errno) + "; set TMPDIR to a folder that can be written, with " +
                       "fewer than " + std::to_string(kLongestFolder) + " bytes in its path");
  }
  path_ = pattern;
  lock_fd_ = LockFolder(path_);
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_fd_);
}

void SocketFolder::RemoveLeftovers() noexcept {
  try {
    std::string pid_namespace = PidNamespace();
    std::error_code error;
    for (fs::directory_iterator it(TemporaryFolder(), error), end; !error && it != end; it.increment(error)) {
      struct stat info {};
      if (::lstat(it->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid()) continue;
      std::error_code ignored;
      if (IsLeftover(it->path().filename().string(), pid_namespace) || IsUnlocked(it->path()))
        fs::remove_all(it->path(), ignored);
    }
  } catch (...) {  // tidying up is a courtesy; it must not stop a job
  }
}

}  // namespace ds
