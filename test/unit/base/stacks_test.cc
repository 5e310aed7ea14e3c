// Why a process makes no progress: its threads' stacks, what others show of it, and what its plan is at.
#include "runtime/base/stacks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/base/activity.h"
#include "runtime/base/process.h"
#include "test/catch.h"

namespace ds {

/// Found by its name in the executable's symbol table; called through a volatile pointer, so that it is not inlined.
__attribute__((noinline)) void HangsForTheStacksTest(std::atomic<bool>& go) {
  while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  asm volatile("" ::: "memory");
}

TEST_CASE("A witness's stack names the function that it hangs in; other threads are listed") {
  std::atomic<bool> ready{false}, go{false};
  std::thread hung([&] {
    const StackWitness witness("the hung one");
    ready = true;
    HangsForTheStacksTest(go);
  });
  std::thread other([&] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!ready) std::this_thread::yield();
  std::string text;
  for (int repeat = 0; repeat < 50; ++repeat) text = AllStacks();
  go = true;
  hung.join();
  other.join();
  INFO(text);
  CHECK(text.find("the hung one, thread ") == 0);
  CHECK(text.find("HangsForTheStacksTest(") != std::string::npos);
  CHECK(text.find("does not answer") == std::string::npos);
  size_t threads = 0;
  for (size_t at = text.find("thread "); at != std::string::npos; at = text.find("thread ", at + 1)) ++threads;
  CHECK(threads >= 3);  // both, and the test's
  CHECK(AllStacks().find("the hung one") == std::string::npos);
}

TEST_CASE("A stopped process is seen from outside, with all of its group; one that is gone is said to be") {
  BecomeSubreaper();
  SpawnOptions options;
  options.argv = {"sh", "-c", "sleep 1000 & wait"};
  options.environment = InheritedEnvironment();
  options.new_group = true;
  const pid_t pid = Spawn(options);
  std::string text;
  for (int i = 0; i < 500 && text.find("(sleep)") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    text = ThreadsOfGroup(pid);
  }
  CHECK(text.find("(sh): asleep") != std::string::npos);
  CHECK(text.find("(sleep): asleep") != std::string::npos);
  ::kill(-pid, SIGSTOP);
  for (int i = 0; i < 500 && ThreadsOf(pid).find("stopped") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(ThreadsOf(pid).find("(sh): stopped") != std::string::npos);
  CHECK(IsStopped(pid));
  CHECK(!IsStopped(::getpid()));
  ::kill(-pid, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {  // it, and its orphan
  }
  CHECK(ThreadsOf(pid).find("is gone") != std::string::npos);
  CHECK(ThreadsOfGroup(pid).find("is gone") != std::string::npos);
}

TEST_CASE("What a rank is at: the first action that waits for nobody, else the first; elsewhere whether it waits") {
  CHECK(CurrentActivity().action.empty());
  CHECK(!CurrentActivity().waits);
  {
    const WaitsForPeers waits;
    CHECK(CurrentActivity().waits);
  }
  const RunningPlan plan([](size_t index) { return "action " + std::to_string(index); });
  CHECK(!CurrentActivity().index);
  const RunningAction compute(0, 7);
  CHECK(CurrentActivity().action == "action 7");
  std::atomic<int> at{0};
  std::thread gather([&] {
    const RunningAction action(1, 5);
    const WaitsForPeers waits;
    at = 1;
    while (at < 2) std::this_thread::yield();
  });
  while (at < 1) std::this_thread::yield();
  CHECK(CurrentActivity().action == "action 7");  // the gather waits
  CHECK(!CurrentActivity().waits);
  {
    const WaitsForPeers waits;
    CHECK(CurrentActivity().action == "action 5");
    CHECK(CurrentActivity().waits);
  }
  at = 2;
  gather.join();
}

}  // namespace ds
