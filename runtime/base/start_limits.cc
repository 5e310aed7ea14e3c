#include "runtime/base/start_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/base/error.h"

namespace ds {
namespace {

Error TooLow(const std::string& program, const std::string& text) {
  return Error(ExitCode::preflight, program + " cannot start here: " + text);
}

void CheckOpenFiles(const std::string& program, rlim_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (limit.rlim_max < wanted)
    throw TooLow(program, "it may open " + std::to_string(limit.rlim_max) +
                              " files (hard limit, RLIMIT_NOFILE), and needs " + std::to_string(wanted) +
                              " at least: raise it (ulimit -Hn, limits.conf, LimitNOFILE of a service)");
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void CheckAddressSpace(const std::string& program, rlim_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  throw TooLow(program,
               "its address space is limited to " + std::to_string(limit.rlim_cur >> 10) +
                   " KiB (RLIMIT_AS), and it needs " + std::to_string(wanted >> 10) +
                   " at least, for the stacks of its threads: raise the limit (ulimit -v unlimited, limits.conf, "
                   "LimitAS of a service); memory is bounded by a control group, not by this");
}

/// How many of `wanted` threads run at once; the reason why not more in `why`.
int ThreadsThatStart(int wanted, std::string& why) {
  std::mutex mutex;
  std::condition_variable over;
  bool done = false;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(wanted));
  try {
    for (int i = 0; i < wanted; ++i) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        over.wait(lock, [&] { return done; });
      });
    }
  } catch (const std::system_error& error) {
    why = error.code().message();
  }
  {
    std::lock_guard lock(mutex);
    done = true;
  }
  over.notify_all();
  for (std::thread& thread : threads) thread.join();
  return static_cast<int>(threads.size());
}

void CheckThreads(const std::string& program, int wanted) {
  std::string why;
  const int started = ThreadsThatStart(wanted, why);
  if (started == wanted) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  const std::string of_user = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  throw TooLow(program, "only " + std::to_string(started) + " more threads can be started (" + why +
                            "), and it needs " + std::to_string(wanted) + ": the user may have " + of_user +
                            " processes and threads (RLIMIT_NPROC, ulimit -u), its control group as many as pids.max "
                            "says: end some, or raise the limit; with a large `ulimit -s` lower that");
}

}  // namespace

void CheckStartLimits(const std::string& program, const StartNeeds& needs) {
  CheckOpenFiles(program, needs.open_files);
  CheckAddressSpace(program, needs.address_space);
  CheckThreads(program, needs.threads);
}

}  // namespace ds
