#include "runtime/base/socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <random>

#include "runtime/base/error.h"
#include "runtime/base/process.h"

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
  return IdentifyProcess(pid).start_time != start;
}

}  // namespace

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
  if (!::mkdtemp(pattern.data())) throw SystemError("cannot make the folder " + pattern, errno);  // mode 0700
  path_ = pattern;
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void SocketFolder::RemoveLeftovers() noexcept {
  try {
    std::string pid_namespace = PidNamespace();
    std::error_code error;
    for (fs::directory_iterator it(TemporaryFolder(), error), end; !error && it != end; it.increment(error)) {
      struct stat info {};
      if (::lstat(it->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid()) continue;
      std::error_code ignored;
      if (IsLeftover(it->path().filename().string(), pid_namespace)) fs::remove_all(it->path(), ignored);
    }
  } catch (...) {  // tidying up is a courtesy; it must not stop a job
  }
}

}  // namespace ds
