// GPUs, cores and memory of workers, through real agents: GPUs by a library in NVML's place, nodes by saved topologies.
#include <sched.h>

#include <algorithm>

#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

/// Four GPUs of a node, two a socket.
LaunchSetting OnFourGpus() {
  LaunchSetting setting;
  setting.environment = {{"DS_NVML_LIBRARY", std::string(DS_BIN_DIR) + "/libfake-nvml.so"},
                         {"DS_FAKE_GPUS", "0000:17:00.0 0000:31:00.0 0000:97:00.0 0000:b1:00.0"}};
  return setting;
}

std::string Seen(const LaunchedJob& job, int ranks) {
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    std::string line = job.Log(rank);
    if (!line.empty()) line.pop_back();
    all += (rank ? " " : "") + line;
  }
  return all;
}

const std::vector<std::string> kShowGpus = {"--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES/$LOCAL_RANK"};

int CoresHere() {
  cpu_set_t here;
  REQUIRE(::sched_getaffinity(0, sizeof here, &here) == 0);
  return CPU_COUNT(&here);
}

/// The message of the event `affinity`.
std::string Affinity(const LaunchedJob& job) {
  for (const ds::Value& line : job.Lines("events.jsonl")) {
    if (Text(line, "event") == "affinity") return Text(line, "message");
  }
  return "none";
}

}  // namespace

TEST_CASE("Without a hostfile, every GPU that CUDA_VISIBLE_DEVICES leaves has a worker") {
  LaunchSetting setting = OnFourGpus();
  std::string expected;
  int ranks = 0;
  SECTION("unset") {
    expected = "0,1,2,3/0 0,1,2,3/1 0,1,2,3/2 0,1,2,3/3";
    ranks = 4;
  }
  SECTION("numbers, one too many") {
    setting.environment["CUDA_VISIBLE_DEVICES"] = "3,1,7,0";
    expected = "3,1/0 3,1/1";
    ranks = 2;
  }
  SECTION("UUIDs") {
    setting.environment["CUDA_VISIBLE_DEVICES"] = "GPU-fake-2,GPU-fake-0";
    expected = "GPU-fake-2,GPU-fake-0/0 GPU-fake-2,GPU-fake-0/1";
    ranks = 2;
  }
  SECTION("none: workers on CPUs") {
    for (const char* none : {"", "-1", "NoDevFiles", "0,0"}) {
      LaunchSetting other = OnFourGpus();
      other.environment["CUDA_VISIBLE_DEVICES"] = none;
      other.arguments = kShowGpus;
      LaunchedJob job(other);
      REQUIRE(job.Wait() == 0);
      CHECK(Seen(job, 2) == std::string(none) + "/0 " + none + "/1");
    }
    return;
  }
  SECTION("instances of a divided GPU: each worker sees its own") {
    setting.environment["DS_FAKE_GPUS"] = "0000:17:00.0/MIG-a1/MIG-b2 0000:97:00.0/MIG-c3";
    setting.environment["CUDA_VISIBLE_DEVICES"] = "MIG-c,MIG-a1";
    expected = "MIG-c3/0 MIG-a1/1";
    ranks = 2;
  }
  setting.arguments = kShowGpus;
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(Seen(job, ranks) == expected);
  CHECK(job.Log(ranks).empty());
}

TEST_CASE("Slots pick among the GPUs that are visible") {
  LaunchSetting setting = OnFourGpus();
  std::string expected;
  SECTION("of all") {
    setting.hosts = "localhost slots=4\n";
    setting.arguments = {"--hostfile", "hosts", "--include", "localhost:1,3"};
    expected = "1,3/0 1,3/1";
  }
  SECTION("of a list") {
    setting.environment["CUDA_VISIBLE_DEVICES"] = "3,2,0";
    setting.hosts = "localhost slots=3\n";
    setting.arguments = {"--hostfile", "hosts", "--include", "localhost:0,2"};
    expected = "3,0/0 3,0/1";
  }
  SECTION("agents on one machine share them out in order") {
    setting.environment["CUDA_VISIBLE_DEVICES"] = "GPU-fake-3,GPU-fake-1,GPU-fake-0";
    setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";
    setting.arguments = {"--hostfile", "hosts"};
    expected = "GPU-fake-3/0 GPU-fake-1/0";
  }
  setting.arguments.insert(setting.arguments.end(), kShowGpus.begin(), kShowGpus.end());
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(Seen(job, 2) == expected);
}

TEST_CASE("More slots than visible GPUs: refused at preflight") {
  LaunchSetting setting = OnFourGpus();
  setting.environment["CUDA_VISIBLE_DEVICES"] = "1,2";
  setting.hosts = "localhost slots=3\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 3);
  CHECK(job.output().find("localhost has 2 GPUs, and its slots need 3") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A program may be given other GPUs by name; ours count in PCI order") {
  LaunchSetting setting = OnFourGpus();
  setting.environment["CUDA_DEVICE_ORDER"] = "FASTEST_FIRST";
  setting.arguments = {"--num-gpus", "1"};
  std::string expected = "0 PCI_BUS_ID";
  SECTION("ours") {}
  SECTION("the user's") {
    setting.arguments.insert(setting.arguments.end(), {"--export", "CUDA_VISIBLE_DEVICES="});
    expected = " PCI_BUS_ID";
  }
  for (const char* argument : {"--", "sh", "-c", "echo \"$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER\""})
    setting.arguments.push_back(argument);
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(Seen(job, 1) == expected);
}

TEST_CASE("Workers get the cores near their GPUs: event and report tell") {
  LaunchSetting setting = OnFourGpus();
  setting.environment["HWLOC_XMLFILE"] = DS_SOURCE_DIR "/test/data/topology/two-sockets.xml";
  setting.arguments = {"--bind", "cores", "--include", "localhost:1,2", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  const std::string expected =
      "2 sockets, 2 NUMA nodes, 32 cores, 64 threads; "
      "rank 0: CPUs 0-15,32-47, memory 0, near GPU 0000:31:00.0; "
      "rank 1: CPUs 16-31,48-63, memory 1, near GPU 0000:97:00.0";
  CHECK(Affinity(job) == expected);
  const std::string report = job.run_directory() + "/report/localhost.json";
  CHECK(Text(ds::ParseJson(ds::ReadFile(report), report), "affinity") == expected);
  CHECK(job.output().find("affinity") == std::string::npos);  // nothing that must be looked at
}

TEST_CASE("--bind cores: each worker runs on cores of its own, and says so to its program") {
  const int cores = CoresHere();
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "2",  "--bind", "cores",
      "--",         "sh", "-c",     "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status; nproc"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  INFO(Affinity(job));
  for (int rank : {0, 1}) {
    std::string log = job.Log(rank);
    const std::string list = log.substr(0, log.find('\n'));
    CHECK(Affinity(job).find("rank " + std::to_string(rank) + ": CPUs " + list + ", memory ") != std::string::npos);
    if (cores >= 2) CHECK(std::stoi(log.substr(log.find('\n'))) < cores);
  }
  if (cores >= 2) CHECK(job.Log(0) != job.Log(1));
}

TEST_CASE("Nobody is bound who should not be") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2"};
  std::string says = "none";
  SECTION("--bind none") { setting.arguments.insert(setting.arguments.end(), {"--bind", "none"}); }
  SECTION("auto, with less than two cores a worker") {
    setting.arguments = {"--num-gpus", std::to_string(CoresHere())};
  }
  SECTION("auto, one worker") { setting.arguments = {"--num-gpus", "1"}; }
  SECTION("threads that are bound otherwise") {
    setting.environment = {{"GOMP_CPU_AFFINITY", "0"}};
    setting.arguments.insert(setting.arguments.end(), {"--bind", "cores"});
    says = "not bound: GOMP_CPU_AFFINITY is set: workers bind their threads themselves";
  }
  SECTION("several agents on a machine") {
    setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";
    setting.arguments = {"--hostfile", "hosts", "--bind", "cores"};
    says = "workers of agents that share a machine are not bound: no agent knows of another's workers";
  }
  setting.arguments.insert(setting.arguments.end(), {"--", "true"});
  LaunchedJob job(setting);
  REQUIRE(job.Wait(60) == 0);
  CHECK(Affinity(job) == says);
}
