// Whether a process was ended for want of memory: records of the kernel's log, counters of control groups.
#include "agent/out_of_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "test/catch.h"

namespace ds {
namespace {

TEST_CASE("Records of the kernel's log name the process that was killed for want of memory") {
  CHECK(KilledForMemory("3,1234,98765,-;Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB\n") ==
        4711);
  CHECK(KilledForMemory("3,1,2,-;Out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:1kB, UID:0\n") == 7);
  CHECK(KilledForMemory("3,1,2,c;out of memory (oom_kill_allocating_task): Killed process 8 (a b) \n") == 8);
  // User programs may write there, with a facility of their own.
  CHECK(!KilledForMemory("11,1,2,-;Out of memory: Killed process 7 (x)\n"));
  CHECK(!KilledForMemory("6,1,2,-;eth0: link becomes ready\n"));
  CHECK(!KilledForMemory("3,1,2,-;Killed process \n"));
  CHECK(!KilledForMemory("3,1,2,-;Killed process -4 (x)\n"));
  CHECK(!KilledForMemory("Killed process 7 (x)\n"));
  CHECK(!KilledForMemory(""));
}

TEST_CASE("A count of the control group explains one process, with the limit") {
  char folder[] = "/tmp/ds-memory-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const std::filesystem::path group = folder;
  const auto count = [&](int kills) {
    std::ofstream(group / "memory.events") << "low 0\nmax 9\noom 1\noom_kill " << kills << "\noom_group_kill 0\n";
  };
  count(2);  // of former jobs
  std::ofstream(group / "memory.max") << 512 * 1024 * 1024 << "\n";
  ::setenv("DS_CGROUP", folder, 1);
  {
    OutOfMemoryWatch watch;
    CHECK(watch.Explain(1 << 30).empty());
    count(3);
    const std::string why = watch.Explain(1 << 30);
    CHECK(why == "the kernel's out-of-memory killer ended it (counted in " + group.string() +
                     "/memory.events; the limit is 512 MiB, " + group.string() + "/memory.max)");
    CHECK(watch.Explain(1 << 30).empty());
    std::ofstream(group / "memory.max") << "max\n";
    count(4);
    CHECK(watch.Explain(1 << 30) ==
          "the kernel's out-of-memory killer ended it (counted in " + group.string() + "/memory.events)");
  }
  ::unsetenv("DS_CGROUP");
  std::filesystem::remove_all(group);
}

}  // namespace
}  // namespace ds
