// Which cores and memory workers get, on saved topologies (test/data/topology), and that they get them.
#include "agent/affinity.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "runtime/base/error.h"
#include "test/catch.h"

namespace ds {
namespace {

using Strings = std::vector<std::string>;

Topology Saved(const std::string& name) {
  return Topology::FromXml(DS_SOURCE_DIR "/test/data/topology/" + name + ".xml");
}

/// "CPUs; memory; near GPU's bus" a worker.
Strings Shares(const std::string& name, const Strings& gpus) {
  Strings texts;
  for (const Binding& binding : Saved(name).ShareOut(gpus)) {
    texts.push_back(binding.cpus + "; " + binding.memory +
                    (binding.near.empty() ? "" : "; " + binding.near.substr(5, 2)));
  }
  return texts;
}

Strings WithoutGpus(size_t workers) { return Strings(workers); }

const Strings kFirstSocket = {"0000:17:00.0", "0000:31:00.0", "0000:4b:00.0", "0000:5d:00.0"};
const Strings kSecondSocket = {"0000:97:00.0", "0000:b1:00.0", "0000:cb:00.0", "0000:dd:00.0"};

Strings Both() {
  Strings all = kFirstSocket;
  all.insert(all.end(), kSecondSocket.begin(), kSecondSocket.end());
  return all;
}

}  // namespace

TEST_CASE("Saved topologies are what they say") {
  CHECK(Saved("laptop").Text() == "1 socket, 1 NUMA node, 4 cores, 8 threads");
  CHECK(Saved("one-socket").Text() == "1 socket, 1 NUMA node, 12 cores, 12 threads");
  CHECK(Saved("two-sockets").Text() == "2 sockets, 2 NUMA nodes, 32 cores, 64 threads");
  CHECK(Saved("nps4").Text() == "2 sockets, 8 NUMA nodes, 32 cores, 32 threads");
  CHECK_THROWS_AS(Saved("absent"), RuntimeError);
}

TEST_CASE("Workers with GPUs share the cores near them, memory too") {
  CHECK(Shares("two-sockets", Both()) == Strings{"0-3,32-35; 0; 17", "4-7,36-39; 0; 31", "8-11,40-43; 0; 4b",
                                                 "12-15,44-47; 0; 5d", "16-19,48-51; 1; 97", "20-23,52-55; 1; b1",
                                                 "24-27,56-59; 1; cb", "28-31,60-63; 1; dd"});
  // As ranks are placed, not as cores are numbered.
  CHECK(Shares("two-sockets", {"0000:97:00.0", "0000:17:00.0"}) == Strings{"16-31,48-63; 1; 97", "0-15,32-47; 0; 17"});
  CHECK(Shares("two-sockets", {"0000:31:00.0", "0000:dd:00.0", "0000:5D:00.0"}) ==
        Strings{"0-7,32-39; 0; 31", "16-31,48-63; 1; dd", "8-15,40-47; 0; 5D"});
  // GPUs of one socket leave the other's cores alone.
  CHECK(Shares("two-sockets", kSecondSocket) ==
        Strings{"16-19,48-51; 1; 97", "20-23,52-55; 1; b1", "24-27,56-59; 1; cb", "28-31,60-63; 1; dd"});
  CHECK(Shares("nps4", {"0000:11:00.0", "0000:31:00.0", "0000:51:00.0", "0000:71:00.0", "0000:91:00.0", "0000:b1:00.0",
                        "0000:d1:00.0", "0000:f1:00.0"}) == Strings{"0-3; 0; 11", "4-7; 1; 31", "8-11; 2; 51",
                                                                    "12-15; 3; 71", "16-19; 4; 91", "20-23; 5; b1",
                                                                    "24-27; 6; d1", "28-31; 7; f1"});
  CHECK(Shares("laptop", {"0000:01:00.0"}) == Strings{"0-7; 0; 01"});
  CHECK(Saved("two-sockets").ShareOut(kFirstSocket)[0].threads == 8);
}

TEST_CASE("Workers without GPUs are spread over the domains") {
  CHECK(Shares("laptop", WithoutGpus(1)) == Strings{"0-7; 0"});
  CHECK(Shares("laptop", WithoutGpus(2)) == Strings{"0-1,4-5; 0", "2-3,6-7; 0"});  // cores with all their threads
  CHECK(Shares("laptop", WithoutGpus(3)) == Strings{"0,4; 0", "1,5; 0", "2-3,6-7; 0"});
  CHECK(Shares("laptop", WithoutGpus(6)) == Strings{"0; 0", "4; 0", "1,5; 0", "2; 0", "6; 0", "3,7; 0"});
  CHECK(Shares("laptop", WithoutGpus(10)) ==
        Strings{"0; 0", "0; 0", "4; 0", "1; 0", "5; 0", "2; 0", "2; 0", "6; 0", "3; 0", "7; 0"});
  CHECK(Shares("one-socket", WithoutGpus(5)) == Strings{"0-1; 0", "2-3; 0", "4-6; 0", "7-8; 0", "9-11; 0"});
  CHECK(Shares("two-sockets", WithoutGpus(1)) == Strings{"0-63; 0-1"});
  CHECK(Shares("two-sockets", WithoutGpus(2)) == Strings{"0-15,32-47; 0", "16-31,48-63; 1"});
  CHECK(Shares("two-sockets", WithoutGpus(3)) == Strings{"0-7,32-39; 0", "8-15,40-47; 0", "16-31,48-63; 1"});
  CHECK(Shares("nps4", WithoutGpus(2)) == Strings{"0-15; 0-3", "16-31; 4-7"});
  CHECK(Shares("nps4", WithoutGpus(8))[7] == "28-31; 7");
  CHECK(Shares("nps4", {}).empty());
}

TEST_CASE("A cgroup's slice of a node is all that is shared out") {
  CHECK(Shares("slice", WithoutGpus(2)) == Strings{"12-15,44-47; 0", "16-17,48-49; 1"});
  CHECK(Shares("slice", WithoutGpus(3)) == Strings{"12-13,44-45; 0", "14-15,46-47; 0", "16-17,48-49; 1"});
  CHECK(Shares("slice", {"0000:97:00.0", "0000:17:00.0"}) == Strings{"16-17,48-49; 1; 97", "12-15,44-47; 0; 17"});
  // No core near the GPUs may be used: those that may are shared out, near to none.
  CHECK(Shares("far-slice", {"0000:17:00.0", "0000:31:00.0"}) == Strings{"28-29,60-61; 1", "30-31,62-63; 1"});
}

TEST_CASE("Where the place of one GPU is not known, no worker is put near one") {
  CHECK(Shares("two-sockets", {"0000:17:00.0", "0000:ee:00.0"}) == Strings{"0-15,32-47; 0", "16-31,48-63; 1"});
  CHECK(Shares("two-sockets", {"0000:17:00.0", ""}) == Strings{"0-15,32-47; 0", "16-31,48-63; 1"});
}

TEST_CASE("What is started bound runs on its cores, and the starter gets its own back") {
  const Topology here = Topology::OfThisMachine();
  cpu_set_t before, after;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  const std::vector<Binding> shares = here.ShareOut(WithoutGpus(2));
  for (const Binding& share : shares) {
    pid_t child = 0;
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const std::string trouble = here.Bound(share, [&] {
      child = ::fork();
      if (child == 0) {
        cpu_set_t own;
        ::sched_getaffinity(0, sizeof own, &own);
        ::_exit(::write(pipe[1], &own, sizeof own) == sizeof own ? 0 : 1);
      }
    });
    CHECK(trouble.find("cores") == std::string::npos);
    cpu_set_t bound;
    REQUIRE(::read(pipe[0], &bound, sizeof bound) == sizeof bound);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
    CHECK(CPU_COUNT(&bound) == share.threads);
    cpu_set_t both;
    CPU_AND(&both, &bound, &before);
    CHECK(CPU_EQUAL(&both, &bound));
  }
  REQUIRE(::sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace ds
