#include "agent/node_facts.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/contain/contain.h"
#include "agent/preflight/preflight.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/cpu_name.h"
#include "runtime/base/file.h"
#include "runtime/base/interface.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The text after `key` and separators on the first line of `path` that begins with `key`.
std::string FieldOf(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    size_t begin = line.find_first_not_of(" \t:=\"", key.size());
    if (begin == std::string::npos) return "";
    return line.substr(begin, line.find_last_not_of("\" \t") + 1 - begin);
  }
  return "";
}

/// Calls `read` with the folder of this process's control group (version 2) and of each above it.
template <class Read>
void ForEachCgroup(Read read) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    fs::path relative = line.substr(4);
    for (;; relative = relative.parent_path()) {
      read(fs::path("/sys/fs/cgroup") / relative);
      if (relative.empty()) return;
    }
  }
}

uint32_t UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  double cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : ::sysconf(_SC_NPROCESSORS_ONLN);
  ForEachCgroup([&](const fs::path& group) {
    std::istringstream text(FirstLine(group / "cpu.max"));  // "QUOTA PERIOD" or "max PERIOD"
    double quota = 0, period = 0;
    if (text >> quota >> period && period > 0) cores = std::min(cores, std::max(1.0, std::floor(quota / period)));
  });
  // What SLURM allocated here, which it may count without confining to it.
  if (const char* allocated = std::getenv("SLURM_CPUS_ON_NODE"); allocated && std::getenv("SLURM_JOB_ID")) {
    if (const int count = std::atoi(allocated); count > 0) cores = std::min(cores, static_cast<double>(count));
  }
  return static_cast<uint32_t>(cores);
}

int64_t MemInfo(const std::string& key) {
  std::istringstream text(FieldOf("/proc/meminfo", key));
  int64_t kib = 0;
  text >> kib;
  return kib * 1024;
}

int64_t UsableMemory() {
  int64_t memory = MemInfo("MemTotal:");
  ForEachCgroup([&](const fs::path& group) {
    std::istringstream text(FirstLine(group / "memory.max"));
    int64_t limit = 0;
    if (text >> limit && limit > 0) memory = std::min(memory, limit);
  });
  return memory;
}

void AddInterfaces(pb::NodeFacts& facts) {
  for (const NetworkInterface& interface : NetworkInterfaces()) {
    auto* fact = facts.add_interfaces();
    fact->set_name(interface.name);
    fact->set_address(interface.Network());
    fact->set_up(interface.up);
    fact->set_megabits(interface.megabits);
  }
}

}  // namespace

int64_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void CollectNodeFacts(const pb::Bootstrap& bootstrap, pb::NodeFacts& facts) {
  utsname system{};
  ::uname(&system);
  facts.set_hostname(system.nodename);
  facts.set_kernel(std::string(system.release) + " " + system.machine);
  facts.set_os(FieldOf("/etc/os-release", "PRETTY_NAME"));
  facts.set_boot_id(FirstLine("/proc/sys/kernel/random/boot_id"));
  facts.set_cpu(CpuName());
  facts.set_cores(UsableCores());
  facts.set_memory(UsableMemory());
  facts.set_memory_available(std::min(MemInfo("MemAvailable:"), facts.memory()));
  facts.set_glibc(::gnu_get_libc_version());
  AddInterfaces(facts);
  RunNodeChecks(bootstrap, facts);
  const pid_t outer = CurrentContainment().outer_pid;
  facts.set_pid(static_cast<uint32_t>(outer > 0 ? outer : ::getpid()));
  facts.set_clock_unix_ns(UnixNanoseconds());
}

}  // namespace ds
