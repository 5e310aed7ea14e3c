// cgroups(7); Documentation/admin-guide/cgroup-v2.rst: "cgroup.kill", "No Internal Process Constraint".
#include "runtime/base/cgroup.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/process.h"

namespace ds {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "deepshard.";

struct Mount {
  std::string root, point, type, options;
};

/// Of control groups, from /proc/self/mountinfo.
std::vector<Mount> Mounts() {
  std::vector<Mount> mounts;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string skipped, field;
    Mount mount;
    fields >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    while (fields >> field && field != "-") {
    }
    fields >> mount.type >> skipped >> mount.options;
    if (mount.type.starts_with("cgroup")) mounts.push_back(mount);
  }
  return mounts;
}

bool Lists(const std::string& list, const std::string& name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

/// The folder of group `group` under `mount`; empty: it is outside of what is mounted.
fs::path FolderOf(const Mount& mount, const std::string& group) {
  if (group.find("/..") != std::string::npos) return {};
  std::string below = group;
  if (mount.root != "/") {
    if (!group.starts_with(mount.root)) return {};
    below = group.substr(mount.root.size());
  }
  while (below.starts_with("/")) below.erase(0, 1);
  const fs::path path = below.empty() ? fs::path(mount.point) : fs::path(mount.point) / below;
  std::error_code error;
  return fs::is_directory(path, error) ? path : fs::path();
}

std::string NamespaceName() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? std::to_string(info.st_ino) : "0";
}

bool WriteTo(const fs::path& path, const char* text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = ::write(fd, text, std::strlen(text)) >= 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  return written;
}

/// Kills everything in a group and below it, and removes it.
bool KillGroup(const fs::path& path, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    if (!WriteTo(path / "cgroup.kill", "1")) {  // before Linux 5.14: one by one, until none is left
      std::ifstream members(path / "cgroup.procs");
      for (pid_t pid; members >> pid;) ::kill(pid, SIGKILL);
    }
    std::error_code error;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      if (it->is_directory(error)) KillGroup(it->path(), 0);
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

std::vector<CgroupFolder> CgroupFolders(const std::string& controller) {
  if (const char* fake = std::getenv("DS_CGROUP"); fake && *fake) return {{fake, fake, true}};
  std::vector<CgroupFolder> folders;
  const std::vector<Mount> mounts = Mounts();
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "ID:CONTROLLERS:/GROUP"; version 2: "0::/GROUP"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && (controller.empty() || !Lists(controllers, controller))) continue;
    for (const Mount& mount : mounts) {
      if (unified ? mount.type != "cgroup2" : mount.type != "cgroup" || !Lists(mount.options, controller)) continue;
      if (fs::path path = FolderOf(mount, group); !path.empty()) {
        folders.insert(unified ? folders.begin() : folders.end(), {mount.point, path, unified});
        break;
      }
    }
  }
  return folders;
}

ChildCgroup::ChildCgroup() {
  const std::vector<CgroupFolder> own = CgroupFolders("");
  if (own.empty()) throw RuntimeError("no control groups of version 2 are mounted");
  const ProcessId self = IdentifyProcess(::getpid());
  path_ = own[0].path / (std::string(kPrefix) + NamespaceName() + "." + std::to_string(self.pid) + "." +
                         std::to_string(self.start_time));
  if (::mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) {
    const int error = errno;
    throw SystemError("no control group can be made in " + own[0].path.string(), error);
  }
}

ChildCgroup::~ChildCgroup() { ::rmdir(path_.c_str()); }

bool ChildCgroup::Enter() const { return WriteTo(path_ / "cgroup.procs", "0"); }

bool ChildCgroup::Kill(double seconds) { return KillGroup(path_, seconds); }

void ChildCgroup::RemoveLeftovers() noexcept {
  try {
    const std::vector<CgroupFolder> own = CgroupFolders("");
    if (own.empty()) return;
    const std::string prefix = std::string(kPrefix) + NamespaceName() + ".";
    std::error_code error;
    for (fs::directory_iterator it(own[0].path, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      struct stat info {};
      if (!name.starts_with(prefix) || ::stat(it->path().c_str(), &info) != 0 || info.st_uid != ::geteuid()) continue;
      char* rest = nullptr;
      const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str() + prefix.size(), &rest, 10));
      if (pid <= 0 || *rest != '.') continue;
      const uint64_t start = std::strtoull(rest + 1, nullptr, 10);
      if (start == 0 || IsRunning({pid, start})) continue;
      KillGroup(it->path(), 1);
    }
  } catch (...) {  // tidying up is a courtesy; it must not stop a job
  }
}

}  // namespace ds
