// mm/oom_kill.c prints "... Killed process PID (NAME) total-vm:..."; Documentation/ABI/testing/dev-kmsg: a record is
// "LEVEL,SEQUENCE,TIME,FLAGS;TEXT", LEVEL with the facility in its higher bits (0: the kernel).
// Documentation/admin-guide/cgroup-v2.rst, memory.events: oom_kill.
#include "agent/out_of_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <fstream>

#include "runtime/base/cgroup.h"

namespace ds {
namespace {

constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO: the log has the numbers of this one
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

uint64_t CountIn(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string key;
  for (uint64_t value; file >> key >> value;)
    if (key == "oom_kill") return value;
  return 0;
}

}  // namespace

std::optional<pid_t> KilledForMemory(std::string_view record) {
  unsigned level = 0;
  const auto [end, error] = std::from_chars(record.data(), record.data() + record.size(), level);
  if (error != std::errc() || level >> 3 != 0) return std::nullopt;
  const size_t text = record.find(';');
  constexpr std::string_view kMark = "Killed process ";
  const size_t mark = text == std::string_view::npos ? text : record.find(kMark, text);
  if (mark == std::string_view::npos) return std::nullopt;
  const char* begin = record.data() + mark + kMark.size();
  pid_t pid = 0;
  if (std::from_chars(begin, record.data() + record.size(), pid).ec != std::errc() || pid <= 0) return std::nullopt;
  return pid;
}

OutOfMemoryWatch::OutOfMemoryWatch() {
  for (const CgroupFolder& group : CgroupFolders("memory")) {
    Counter counter{group.path / (group.unified ? "memory.events" : "memory.oom_control"),
                    group.path / (group.unified ? "memory.max" : "memory.limit_in_bytes")};
    counter.seen = CountIn(counter.file);
    counters_.push_back(counter);
  }
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) != 0 || info.st_ino != kFirstPidNamespace) return;
  log_fd_ = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (log_fd_ >= 0) ::lseek(log_fd_, 0, SEEK_END);
}

OutOfMemoryWatch::~OutOfMemoryWatch() {
  if (log_fd_ >= 0) ::close(log_fd_);
}

void OutOfMemoryWatch::ReadLog() {
  char record[8192];  // one a read
  while (log_fd_ >= 0) {
    const ssize_t n = ::read(log_fd_, record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // records that were overwritten meanwhile
    if (n <= 0) return;
    if (auto pid = KilledForMemory({record, static_cast<size_t>(n)})) killed_.insert(*pid);
  }
}

std::string OutOfMemoryWatch::Explain(pid_t pid) {
  ReadLog();
  std::string how;
  if (killed_.erase(pid) > 0) how = "the kernel's log names it";
  for (Counter& counter : counters_) {
    if (CountIn(counter.file) <= counter.seen) continue;
    ++counter.seen;  // also where the log told: a count is of one process
    uint64_t limit = 0;
    std::string limited;
    if (std::ifstream(counter.limit) >> limit && limit < kNoLimit)
      limited = "; the limit is " + std::to_string(limit >> 20) + " MiB, " + counter.limit.string();
    how = (how.empty() ? "counted in " + counter.file.string() : how) + limited;
    break;
  }
  return how.empty() ? "" : "the kernel's out-of-memory killer ended it (" + how + ")";
}

}  // namespace ds
