#include "agent/node_facts.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

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

uint64_t HardLimit(int resource) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit.rlim_max == RLIM_INFINITY ? std::numeric_limits<uint64_t>::max() : limit.rlim_max;
}

void AddDisk(const std::string& path, pb::NodeFacts& facts) {
  struct statvfs info {};
  if (path.empty() || ::statvfs(path.c_str(), &info) != 0) return;
  auto* disk = facts.add_disks();
  disk->set_path(path);
  disk->set_size(static_cast<int64_t>(info.f_blocks) * static_cast<int64_t>(info.f_frsize));
  disk->set_free(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
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

bool TokenSeen(const std::string& path, const std::string& token) {
  if (path.empty()) return false;
  std::ifstream file(path, std::ios::binary);
  std::string found((std::istreambuf_iterator<char>(file)), {});
  return file && found == token;
}

}  // namespace

int64_t ResidentBytes(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

void CollectNodeFacts(const std::string& token_path, const std::string& token, pb::NodeFacts& facts) {
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
  facts.set_open_files(HardLimit(RLIMIT_NOFILE));
  facts.set_locked_memory(HardLimit(RLIMIT_MEMLOCK));
  AddInterfaces(facts);
  std::set<std::string> paths{"/", "/tmp"};
  if (!token_path.empty()) paths.insert(fs::path(token_path).parent_path().string());
  for (const std::string& path : paths) AddDisk(path, facts);
  facts.set_token_seen(TokenSeen(token_path, token));
  facts.set_pid(static_cast<uint32_t>(::getpid()));
  facts.set_clock_unix_ns(UnixNanoseconds());
}

}  // namespace ds
