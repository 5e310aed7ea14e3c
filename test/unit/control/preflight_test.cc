// What the launcher makes of what nodes told; names of checks and hosts; the node's checks that hang.
#include "launcher/nodes/preflight.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <thread>

#include "agent/preflight/preflight.h"
#include "agent/preflight/prober.h"
#include "launcher/nodes/node_report.h"
#include "launcher/nodes/preflight_needs.h"
#include "launcher/nodes/reachability.h"
#include "runtime/base/error.h"
#include "runtime/job/preflight_names.h"
#include "test/catch.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
constexpr int64_t kGiB = int64_t{1} << 30;

/// Two nodes that lack nothing, and a training job on them.
struct Cluster {
  std::vector<HostSlots> hosts = {{"w0", "", {0, 1}}, {"w1", "", {0, 1}}};
  std::vector<pb::NodeFacts> facts{2};
  std::vector<int64_t> offsets{0, 0};
  std::vector<ProbeOutcome> probes{{"", 1, 0.5}, {"", 1, 0.5}};
  PreflightNeeds needs;

  Cluster() {
    for (size_t i = 0; i < facts.size(); ++i) {
      pb::NodeFacts& node = facts[i];
      node.set_boot_id("machine " + std::to_string(i));
      node.set_cores(8);
      node.set_open_files(100000);
      node.set_locked_memory(std::numeric_limits<uint64_t>::max());
      node.set_processes(std::numeric_limits<uint64_t>::max());
      node.set_token_seen(true);
      node.set_shm_size(kGiB);
      node.set_shm_free(kGiB);
      node.set_contained("process");
      AddDisk(node, "/", kGiB);
      AddDisk(node, "/tmp", kGiB);
      AddDisk(node, "/runs/x/1", 10 * kGiB);
    }
    needs.foreign = false;
    needs.shared_output = needs.one_device_kind = true;
    needs.output = "/runs/x/1";
    needs.checkpoint_bytes = kGiB;
    needs.checkpoints = 3;
    needs.checkpoint_keep = 2;
    needs.world = 4;
  }

  static void AddDisk(pb::NodeFacts& node, const std::string& path, int64_t free) {
    auto* disk = node.add_disks();
    disk->set_path(path);
    disk->set_size(100 * kGiB);
    disk->set_free(free);
  }
  void AddGpus(int count) {
    for (pb::NodeFacts& node : facts)
      for (int gpu = 0; gpu < count; ++gpu) node.add_gpus();
  }
  void AddCheck(const char* name, bool warning, const std::string& text) {
    pb::NodeFacts::Check* check = facts[1].add_checks();
    check->set_name(name);
    check->set_warning(warning);
    check->set_text(text);
    check->set_milliseconds(3);
  }

  std::vector<std::vector<CheckResult>> Judged() const { return JudgeNodes(hosts, facts, offsets, probes, needs); }
  std::vector<std::string> Lines() const { return PreflightLines(hosts, Judged()); }
  /// The only line there is.
  std::string Line() const {
    const std::vector<std::string> lines = Lines();
    CAPTURE(lines);
    REQUIRE(lines.size() == 1);
    return lines[0];
  }
};

TEST_CASE("Nodes that lack nothing: one line, every check there with its time") {
  Cluster cluster;
  const auto judged = cluster.Judged();
  REQUIRE(judged.size() == 2);
  REQUIRE(judged[0].size() == kCheckNames.size());
  for (size_t i = 0; i < kCheckNames.size(); ++i) {
    CAPTURE(judged[0][i].text);
    CHECK(judged[0][i].name == kCheckNames[i]);
    CHECK(judged[0][i].status == CheckStatus::passed);
  }
  CHECK(cluster.Lines().empty());
  CHECK(PreflightSummary(judged) == "preflight: 13 checks passed on 2 nodes in 0 ms");
  CHECK(judged[0][0].milliseconds == 0.5);
}

TEST_CASE("Each check: what is wrong, where, and what to do") {
  Cluster cluster;
  SECTION("disk") {
    cluster.facts[1].mutable_disks(2)->set_free(kGiB * 12 / 10);
    CHECK(
        cluster.Line() ==
        "preflight: disk on w1: 1.2 GiB free at /runs/x/1, 3.0 GiB needed for 3 checkpoints (checkpoint.keep is 2, and "
        "one is being written); free space or set checkpoint.keep");
  }
  SECTION("disk: no room for a socket") {
    cluster.facts[1].mutable_disks(1)->set_free(0);
    CHECK(cluster.Line().find("disk on w1: no space left at /tmp") != std::string::npos);
  }
  SECTION("disk: little room for a socket is a warning") {
    cluster.facts[1].mutable_disks(1)->set_free(32 << 20);
    CHECK(cluster.Line().starts_with("preflight warning: disk on w1: only 32 MiB free at /tmp"));
  }
  SECTION("clock") {
    cluster.offsets[1] = -5'000'000'000;
    CHECK(cluster.Line().starts_with("preflight warning: clock on w1: 5.0 s behind of ds-launch's clock"));
    cluster.offsets[1] = 61'000'000'000;
    CHECK(cluster.Line().starts_with("preflight: clock on w1: 61.0 s ahead"));
    cluster.offsets[1] = 1'900'000'000;
    CHECK(cluster.Lines().empty());
  }
  SECTION("shared output") {
    cluster.facts[1].set_token_seen(false);
    CHECK(cluster.Line().starts_with("preflight: shared-output on w1: the output folder is not shared with w1"));
    cluster.needs.shared_output = false;
    CHECK(cluster.Lines().empty());
  }
  SECTION("open files of the agent: 1024 for 128 ranks") {
    for (int slot = 2; slot < 128; ++slot) cluster.hosts[1].slots.push_back(slot);
    cluster.facts[1].set_open_files(1024);
    cluster.needs.world = 130;
    CHECK(cluster.Line() ==
          "preflight: open-files on w1: w1 allows 1024 open files (hard limit), and 128 workers need 1088: raise it "
          "(ulimit -Hn, limits.conf, LimitNOFILE of a daemon)");
  }
  SECTION("open files of a worker: it is connected with every other") {
    cluster.needs.world = 1000;
    cluster.facts[1].set_open_files(1024);
    CHECK(cluster.Line().find("each of 1000 ranks that are connected needs 4064") != std::string::npos);
    cluster.needs.foreign = true;  // a program's connections are its own affair
    CHECK(cluster.Lines().empty());
  }
  SECTION("locked memory matters where NCCL registers it with a network card") {
    cluster.facts[1].set_locked_memory(8 << 20);
    CHECK(cluster.Lines().empty());
    cluster.AddGpus(2);
    CHECK(cluster.Lines().empty());
    cluster.facts[1].add_rdma("mlx5_0");
    CHECK(cluster.Line().starts_with("preflight: locked-memory on w1: 8.0 MiB of memory may be locked"));
    cluster.facts[1].set_locked_memory(kGiB);
    CHECK(cluster.Line().starts_with("preflight warning: locked-memory on w1: 1.0 GiB"));
  }
  SECTION("processes and threads") {
    cluster.facts[1].set_processes(50);
    cluster.facts[1].set_processes_limit("ulimit -u 100");
    CHECK(
        cluster.Line() ==
        "preflight: processes on w1: only 50 more processes and threads may start (ulimit -u 100), and 2 workers need "
        "88: raise the limit");
  }
  SECTION("/dev/shm") {
    cluster.facts[1].set_shm_free(1 << 20);
    CHECK(cluster.Lines().empty());  // CPUs: Gloo does not use it
    cluster.AddGpus(2);
    CHECK(
        cluster.Line().starts_with("preflight warning: shm on w1: 1.0 MiB free of 1.0 GiB, and NCCL may need 64 MiB"));
  }
  SECTION("more slots than GPUs") {
    cluster.AddGpus(1);
    REQUIRE(cluster.Lines().size() == 2);
    CHECK(cluster.Lines()[0].find("slots on w0: w0 has 1 GPUs, and its slots need 2") != std::string::npos);
    cluster.needs.device = DeviceChoice::cpu;
    CHECK(cluster.Lines().empty());
  }
  SECTION("GPUs on one node alone") {
    cluster.facts[0].add_gpus();
    cluster.facts[0].add_gpus();
    CHECK(cluster.Line().find("w1 has no GPUs and w0 has some") != std::string::npos);
  }
  SECTION("agents on one machine share out its GPUs") {
    cluster.facts[1].set_boot_id("machine 0");
    cluster.AddGpus(3);
    CHECK(cluster.Line().find("w1 has 3 GPUs, and its slots need 4 with those of the hosts before it") !=
          std::string::npos);
  }
  SECTION("what the node itself found wrong") {
    cluster.AddCheck("gpu-state", false, "GPU 3 has fallen off the bus: restart the node");
    CHECK(cluster.Line() == "preflight: gpu-state on w1: GPU 3 has fallen off the bus: restart the node");
    cluster.needs.device = DeviceChoice::cpu;
    CHECK(cluster.Line().starts_with("preflight warning: "));
    CHECK(cluster.Judged()[1][11].milliseconds == 3);
  }
  SECTION("a warning of the node") {
    cluster.AddCheck("gpu-state", true, "GPU 3 is hot");
    CHECK(cluster.Line() == "preflight warning: gpu-state on w1: GPU 3 is hot");
  }
  SECTION("nodes that do not reach each other") {
    cluster.probes[1].text = "it does not reach w0 at 10.0.0.1 (no answer within 5 s)";
    CHECK(cluster.Line() == "preflight: reachability on w1: it does not reach w0 at 10.0.0.1 (no answer within 5 s)");
  }
  SECTION("no ds-worker") {
    cluster.facts[1].set_worker_program("/opt/ds-worker: No such file or directory");
    CHECK(cluster.Line().starts_with("preflight: worker on w1: ds-worker cannot be run: /opt/ds-worker"));
  }
}

TEST_CASE("Everything that is wrong is told, failures first, equal ones of several nodes once") {
  Cluster cluster;
  for (pb::NodeFacts& node : cluster.facts) node.set_token_seen(true);
  cluster.offsets[0] = 5'000'000'000;
  for (pb::NodeFacts& node : cluster.facts) node.mutable_disks(2)->set_free(kGiB);
  cluster.facts[1].set_open_files(10);
  const std::vector<std::string> lines = cluster.Lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].starts_with("preflight: disk on w[0,1]: 1.0 GiB free"));
  CHECK(lines[1].starts_with("preflight: open-files on w1: "));
  CHECK(lines[2].starts_with("preflight warning: clock on w0: "));
}

TEST_CASE("A skipped check fails nothing, and says that it was skipped") {
  Cluster cluster;
  cluster.facts[1].set_open_files(10);
  cluster.AddCheck("gpu-state", false, "broken");
  cluster.needs.skip = {"open-files", "gpu-state"};
  CHECK(cluster.Lines().empty());
  CHECK(cluster.Judged()[1][5].status == CheckStatus::skipped);
  CHECK(PreflightSummary(cluster.Judged()) ==
        "preflight: 11 checks passed on 2 nodes in 0 ms; skipped: open-files, gpu-state");
}

TEST_CASE("ds-launch's own open files: a log a rank") {
  CHECK(LauncherFilesTrouble(800, 100, 2000).empty());
  CHECK(LauncherFilesTrouble(2048, 256, 1024) ==
        "ds-launch may open 1024 files (hard limit), and 2048 ranks on 256 nodes need 4160: raise it (ulimit -Hn, "
        "limits.conf)");
}

TEST_CASE("Names of checks: lists, each once, in order; an unknown one is an error that lists them") {
  std::vector<std::string> names;
  AddCheckNames("shm,clock", names);
  AddCheckNames("clock,disk", names);
  CHECK(names == std::vector<std::string>{"clock", "disk", "shm"});
  for (const char* wrong : {"", "clock,", "Clock", "clocks", "clock disk"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH(AddCheckNames(wrong, names), Catch::Contains("reachability, versions, clock"));
  }
}

TEST_CASE("Names of hosts are taken together") {
  CHECK(GroupHosts({"w0"}) == "w0");
  CHECK(GroupHosts({"w0", "w1", "w2", "w3"}) == "w[0-3]");
  CHECK(GroupHosts({"w3", "w1", "w0", "w7"}) == "w[0,1,3,7]");
  CHECK(GroupHosts({"w08", "w09", "w10", "w11"}) == "w[08,09], w[10,11]");
  CHECK(GroupHosts({"gpu-a", "gpu-b", "n1.x", "n2.x", "n3.x"}) == "gpu-a, gpu-b, n[1-3].x");
  CHECK(GroupHosts({"10.0.0.1", "10.0.0.2", "10.0.1.2"}) == "10.0.0.[1,2], 10.0.1.2");
  CHECK(GroupHosts({"w123456789012345", "w123456789012346"}) == "w123456789012345, w123456789012346");
  CHECK(GroupHosts({}).empty());
}

TEST_CASE("Who dials whom: all pairs of few nodes; of many every node is dialled, by a few") {
  CHECK(NodesToDial(1, 3) == std::vector<uint32_t>{0, 2});
  CHECK(NodesToDial(0, 1).empty());
  for (size_t count : {17, 64, 1000}) {
    std::set<uint32_t> dialled;
    for (size_t node = 0; node < count; ++node) {
      const std::vector<uint32_t> others = NodesToDial(node, count);
      CHECK(others.size() <= 10);
      for (uint32_t other : others) {
        CHECK(other != node);
        dialled.insert(other);
      }
    }
    CHECK(dialled.size() == count);
  }
}

TEST_CASE("A check of the node that hangs has failed after its time; the others are not held up") {
  static std::atomic<bool> over{false};
  const std::vector<NodeCheck> checks = {
      {"disk",
       [](const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) {
         while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
         found.set_shm_size(1);
       }},
      {"shm", [](const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) { found.set_shm_size(7); }},
      {"gpu-state",
       [](const pb::Bootstrap&, pb::NodeFacts&, pb::NodeFacts::Check&) { throw RuntimeError("no such thing"); }},
      {"worker", [](const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) { found.set_pid(1); }},
      {"slots", [](const pb::Bootstrap&, pb::NodeFacts& found, pb::NodeFacts::Check&) { found.set_cores(2); }, true}};
  pb::Bootstrap bootstrap;
  bootstrap.add_skip_checks("worker");
  bootstrap.add_skip_checks("slots");
  pb::NodeFacts facts;
  RunNodeChecks(checks, bootstrap, 0.3, facts);
  over = true;
  REQUIRE(facts.checks_size() == 4);
  CHECK(!facts.checks(0).passed());
  CHECK(facts.checks(0).text().find("no answer within") != std::string::npos);
  CHECK(facts.checks(0).milliseconds() >= 300);
  CHECK(facts.checks(1).passed());
  CHECK(facts.shm_size() == 7);
  CHECK(facts.checks(2).text() == "no such thing");
  CHECK(facts.pid() == 0);    // skipped
  CHECK(facts.cores() == 2);  // skipped too, but ranks are placed by it
}

TEST_CASE("Probes: a node that listens is reached; a closed port, a stranger and silence are not") {
  std::vector<pb::ProbeResult> results;
  std::mutex mutex;
  Prober listening([](pb::ProbeResult) {});
  const pb::ProbeListening there = listening.Listen("127.0.0.1");
  REQUIRE(there.error().empty());
  CHECK(!listening.Listen("127.0.0.1").error().empty());  // once
  Prober nowhere([](pb::ProbeResult) {});
  CHECK(!nowhere.Listen("192.0.2.1").error().empty());  // nobody's (RFC 5737)
  std::atomic<bool> told{false};
  pb::ProbeResult result;
  Prober dialling([&](pb::ProbeResult r) {
    result = std::move(r);
    told = true;
  });
  pb::ProbeDial dial;
  dial.set_seconds(1);
  for (int i = 0; i < 4; ++i) {
    pb::ProbePeer* peer = dial.add_peers();
    peer->set_node(static_cast<uint32_t>(i));
    peer->set_address(i == 3 ? "not-an-address" : "127.0.0.1");
    peer->set_port(i == 2 ? 1 : there.port());
    peer->set_greeting(i == 1 ? "another greeting" : there.greeting());
  }
  dialling.Dial(dial);
  for (int i = 0; i < 500 && !told; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(told);
  REQUIRE(result.peers_size() == 4);
  CHECK(result.peers(0).error().empty());
  CHECK(result.peers(1).error() == "somebody else answers there");
  CHECK(result.peers(2).error() == "Connection refused");
  CHECK(result.peers(3).error() == "not an address");
}

TEST_CASE("ds-report's table: nodes that are alike share a column, what differs is marked") {
  Cluster cluster;
  std::vector<NodeReport> reports;
  const auto judged = cluster.Judged();
  for (int i = 0; i < 9; ++i) {
    pb::NodeFacts facts = cluster.facts[0];
    facts.set_kernel(i == 8 ? "6.1.0-21" : "6.1.0-18");
    facts.set_memory_available(i * kGiB);  // varies: no difference
    reports.push_back({"w" + std::to_string(i), facts, 0, "", judged[0]});
  }
  const std::string table = ToTable(reports, 200, false);
  CAPTURE(table);
  CHECK(table.find("w[0-7]") < table.find("w8"));
  CHECK(table.find("* kernel") != std::string::npos);
  CHECK(table.find("* memory available") == std::string::npos);
  CHECK(table.find("6.1.0-18        6.1.0-21") != std::string::npos);
  CHECK(table.find("  disk") != std::string::npos);
  CHECK(table.find('\x1b') == std::string::npos);
  CHECK(ToTable(reports, 200, true).find('\x1b') != std::string::npos);

  const std::string narrow = ToTable(reports, 30, false);  // columns do not fit
  CAPTURE(narrow);
  CHECK(narrow.find("all nodes") != std::string::npos);
  CHECK(narrow.find("* kernel") != std::string::npos);
  CHECK(narrow.find("w[0-7]  6.1.0-18") != std::string::npos);
}

}  // namespace
}  // namespace ds
