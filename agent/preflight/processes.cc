// How many processes and threads the user may still start here: `ulimit -u` and the control group's pids.max.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "agent/preflight/preflight.h"
#include "runtime/base/cgroup.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

/// Threads of this user's processes: what `ulimit -u` counts.
uint64_t ThreadsOfUser() {
  uint64_t threads = 0;
  DIR* folder = ::opendir("/proc");
  if (!folder) return 0;
  while (dirent* entry = ::readdir(folder)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    struct stat info {};
    const std::string process = std::string("/proc/") + entry->d_name;
    if (::stat(process.c_str(), &info) != 0 || info.st_uid != ::getuid()) continue;
    if (::stat((process + "/task").c_str(), &info) == 0 && info.st_nlink > 2) threads += info.st_nlink - 2;
  }
  ::closedir(folder);
  return threads;
}

void Lower(uint64_t left, const std::string& limit, pb::NodeFacts& found) {
  if (left >= found.processes()) return;
  found.set_processes(left);
  found.set_processes_limit(limit);
}

uint64_t Left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

}  // namespace

void LookAtProcesses(const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) {
  found.set_processes(std::numeric_limits<uint64_t>::max());
  rlimit limit{};
  // The kernel does not hold root to it.
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && ::geteuid() != 0)
    Lower(Left(limit.rlim_cur, ThreadsOfUser()), "ulimit -u " + std::to_string(limit.rlim_cur), found);
  for (const CgroupFolder& group : CgroupFolders("pids")) {
    for (std::filesystem::path path = group.path;; path = path.parent_path()) {
      uint64_t most = 0, now = 0;
      if (std::ifstream(path / "pids.max") >> most && std::ifstream(path / "pids.current") >> now)
        Lower(Left(most, now), "pids.max " + std::to_string(most) + " of " + path.string(), found);
      if (path == group.root || path == path.parent_path()) break;
    }
  }
}

}  // namespace ds
