// Children: their ends are told, and none runs on unwatched.
#include "runtime/base/process.h"

#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/queue.h"
#include "test/catch.h"

namespace ds {
namespace {

pid_t Start(const std::string& script) {
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", script};
  options.environment = InheritedEnvironment();
  return Spawn(options);
}

}  // namespace

TEST_CASE("The end of a watched child is told with its exit code or signal") {
  Queue<std::pair<pid_t, ProcessEnd>> ends;
  ProcessWatcher watcher([&](pid_t pid, ProcessEnd end) { ends.Push({pid, end}); });
  for (const auto& [script, code, signal] : {std::tuple{"exit 7", 7, 0}, std::tuple{"kill -9 $$", 0, SIGKILL}}) {
    pid_t pid = Start(script);
    watcher.Watch(pid);
    auto end = ends.PopUntil(std::chrono::steady_clock::now() + std::chrono::seconds(20));
    REQUIRE(end);
    CHECK(end->first == pid);
    CHECK(end->second.code == code);
    CHECK(end->second.signal == signal);
  }
}

TEST_CASE("A child that cannot be watched is ended and reaped") {
  ProcessWatcher watcher([](pid_t, ProcessEnd) {});
  pid_t pid = Start("exec sleep 1000");
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  rlimit none{0, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  bool refused = false;
  try {
    watcher.Watch(pid);
  } catch (const Error&) {
    refused = true;
  }
  ::setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(refused);
  CHECK((::kill(pid, 0) == -1 && errno == ESRCH));
  if (!refused) ::kill(pid, SIGKILL);
}

}  // namespace ds
