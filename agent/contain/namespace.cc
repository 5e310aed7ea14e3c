#include "agent/contain/namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ds {
namespace {

std::string Why(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

bool WriteFile(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

}  // namespace

std::string BeginNamespace() {
  const uid_t user = ::geteuid();
  const gid_t group = ::getegid();
  if (::unshare(CLONE_NEWPID) == 0) return "";
  if (errno != EPERM) return Why("no process namespace");
  if (::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) return Why("no user namespace, which it takes without root");
  // Of a process whose memory is closed (KeepMemoryPrivate) root owns these files.
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  ::prctl(PR_SET_DUMPABLE, 1);
  // Groups must be given up as something to change before the group may be mapped (user_namespaces(7)).
  WriteFile("/proc/self/setgroups", "deny");
  const bool mapped = WriteFile("/proc/self/uid_map", std::to_string(user) + " " + std::to_string(user) + " 1") &&
                      WriteFile("/proc/self/gid_map", std::to_string(group) + " " + std::to_string(group) + " 1");
  const std::string why = mapped ? "" : Why("the user cannot be mapped into a user namespace");
  ::prctl(PR_SET_DUMPABLE, dumpable);
  return why;
}

std::string EnterNamespace() {
  if (::unshare(CLONE_NEWNS) != 0) return Why("no mount namespace");
  // What the node mounts later still appears here; what is mounted here does not appear there.
  if (::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) return Why("mounts cannot be set apart");
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return Why("no /proc of its own can be mounted");
  return "";
}

std::string TryNamespace() {
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return Why("no pipe");
  // Between fork and _exit: this process may have threads. What is called allocates only short strings, and a hang here
  // would show as a check without an answer.
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::string why = BeginNamespace();
    if (why.empty()) {
      const pid_t inner = ::fork();
      if (inner == 0) {
        why = EnterNamespace();
        [[maybe_unused]] ssize_t n = ::write(report[1], why.data(), why.size());
        ::_exit(0);
      }
      if (inner > 0) ::waitpid(inner, nullptr, 0);
      if (inner < 0) why = Why("no process in a namespace of its own");
    }
    [[maybe_unused]] ssize_t n = ::write(report[1], why.data(), why.size());
    ::_exit(0);
  }
  ::close(report[1]);
  std::string text(256, '\0');
  ssize_t n = 0;
  if (pid > 0)
    while ((n = ::read(report[0], text.data(), text.size())) < 0 && errno == EINTR) {
    }
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  ::close(report[0]);
  if (pid < 0) return "no process could be started to try it";
  ::waitpid(pid, nullptr, 0);
  return text;
}

}  // namespace ds
