// Whether the kernel's out-of-memory killer ended a process: by the kernel's log where it can be read, else by the
// counters of the control groups that this process is in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

class OutOfMemoryWatch {
 public:
  OutOfMemoryWatch();  ///< what happened before counts for nothing
  ~OutOfMemoryWatch();
  OutOfMemoryWatch(const OutOfMemoryWatch&) = delete;
  OutOfMemoryWatch& operator=(const OutOfMemoryWatch&) = delete;

  /// Of `pid`, which SIGKILL ended and which nobody here sent it. "the kernel's out-of-memory killer ..." with how it
  /// is known and the limit, or empty. Each count of a control group explains one process.
  std::string Explain(pid_t pid);

 private:
  struct Counter {
    std::filesystem::path file, limit;
    uint64_t seen = 0;
  };
  void ReadLog();

  std::vector<Counter> counters_;
  int log_fd_ = -1;
  std::set<pid_t> killed_;  ///< of the log
};

/// The process that a record of /dev/kmsg says was killed for want of memory; only the kernel's own records count.
std::optional<pid_t> KilledForMemory(std::string_view record);

}  // namespace ds
