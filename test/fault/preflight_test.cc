// Nodes that cannot run the job: exit code 3, each node and check named, before any worker starts.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/base/cgroup.h"
#include "runtime/base/json.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::Value;
using ds::test::CauseOf;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

namespace fs = std::filesystem;

Value Report(const LaunchedJob& job, const std::string& host) {
  std::ifstream file(job.run_directory() + "/report/" + host + ".json");
  return ds::ParseJson(std::string((std::istreambuf_iterator<char>(file)), {}), host);
}

/// A check of a report; fails the test where it is not there.
Value CheckOf(const Value& report, const std::string& name) {
  const Value* checks = report.Find("checks");
  REQUIRE(checks);
  for (const Value& check : checks->items)
    if (Text(check, "name") == name) return check;
  FAIL("no check " << name);
  return {};
}

/// Programs on one rank of a node with GPUs as the fake library tells them.
LaunchSetting OnGpus(const std::string& gpus, std::vector<std::string> more = {}) {
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=1\n";
  setting.environment = {{"DS_NVML_LIBRARY", std::string(DS_BIN_DIR) + "/libsick-nvml.so"}, {"DS_TEST_NVML", gpus}};
  setting.arguments = {"--hostfile", "hosts"};
  setting.arguments.insert(setting.arguments.end(), more.begin(), more.end());
  for (const char* argument : {"--", "true"}) setting.arguments.push_back(argument);
  return setting;
}

}  // namespace

TEST_CASE("Too few open files: said at preflight") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=20\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  setting.shell_prelude = "ulimit -n 128";
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 3);
  CHECK(CauseOf(job.Summary(), "kind") == "preflight");
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.3");
  CHECK(CauseOf(job.Summary(), "message").find("open files") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("1024 open files and 128 ranks on a node: said at preflight, nothing stalls") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=128\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  setting.shell_prelude = "ulimit -n 1024";
  LaunchedJob job(setting);
  REQUIRE(job.Wait(10) == 3);
  INFO(job.output());
  CHECK(CauseOf(job.Summary(), "message") ==
        "open-files on 127.0.0.3: 127.0.0.3 allows 1024 open files (hard limit), and 128 workers need 1088: raise it "
        "(ulimit -Hn, limits.conf, LimitNOFILE of a daemon)");
  CHECK(job.Workers().empty());
  CHECK(job.Log(0).empty());
  CHECK(job.NothingLeft());
}

TEST_CASE("64 open files: an error that names them, not a crash; two ranks still run") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=8\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  setting.shell_prelude = "ulimit -n 64";
  LaunchedJob job(setting);
  REQUIRE(job.Wait(10) == 3);
  INFO(job.output());
  CHECK(CauseOf(job.Summary(), "message").find("allows 64 open files") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("Limits with which gRPC hangs or aborts end ds-launch before it starts, with what is needed") {
  for (const auto& [limit, says] : {std::pair("ulimit -v 200000", "address space is limited to 200000 KiB"),
                                    std::pair("ulimit -v 50000", "needs 1048576 at least"),
                                    std::pair("ulimit -n 12", "it may open 12 files (hard limit, RLIMIT_NOFILE)"),
                                    std::pair("ulimit -n 14", "needs 64 at least")}) {
    CAPTURE(limit);
    LaunchSetting setting;
    setting.arguments = {"--", "true"};
    setting.shell_prelude = limit;
    LaunchedJob job(setting);
    CHECK(job.Wait(10) == 3);
    INFO(job.output());
    CHECK(job.output().find(says) != std::string::npos);
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("Whatever gRPC does, ds-launch and its agents end: with the job's exit code, all files written") {
  SECTION("its shutdown hangs") {
    for (const char* where : {"control.shutdown,hang", "local.shutdown,hang"}) {
      CAPTURE(where);
      LaunchSetting setting;
      setting.environment = {{"DS_FAILPOINT", where}};
      setting.arguments = {"--num-gpus", "1", "--", "sh", "-c", "exit 9"};
      LaunchedJob job(setting);
      CHECK(job.Wait(20) == 9);
      CHECK(CauseOf(job.Summary(), "kind") == "worker_exit");
      CHECK(job.output().find("sh failed (exit code 9)") != std::string::npos);
      CHECK(job.NothingLeft());
    }
  }
  SECTION("its start hangs") {
    LaunchSetting setting;
    setting.environment = {{"DS_FAILPOINT", "control.start,hang"}};
    setting.arguments = {"--set", "launch.join_seconds=1", "--", "true"};
    LaunchedJob job(setting);
    CHECK(job.Wait(20) == 3);
    CHECK(job.output().find("could not begin to listen for agents within launch.join_seconds") != std::string::npos);
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("An agent that cannot start says why in the cause: TMPDIR, with what to do") {
  LaunchSetting setting;
  setting.arguments = {"--", "true"};
  setting.shell_prelude = "export TMPDIR=/nonexistent";
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 3);
  INFO(job.output());
  const std::string message = CauseOf(job.Summary(), "message");
  CHECK(message.find("cannot make a folder for sockets, /nonexistent/ds-agent.") != std::string::npos);
  CHECK(message.find("No such file or directory; set TMPDIR to a folder that can be written") != std::string::npos);
  const size_t last = job.output().rfind("true failed (exit code 3): ");
  REQUIRE(last != std::string::npos);
  CHECK(job.output().find("set TMPDIR", last) != std::string::npos);
}

TEST_CASE("TMPDIR may have any bytes: blanks, what means something in a URI, no UTF-8") {
  for (const char* name : {"a b%41?#", "t\\377"}) {
    CAPTURE(name);
    LaunchSetting setting;
    setting.hosts = "127.0.0.3 slots=1\n";
    setting.arguments = {"fake.yaml", "--hostfile", "hosts"};  // its worker reaches the agent there
    setting.shell_prelude = std::string("export TMPDIR=\"$PWD/$(printf '") + (*name == 't' ? name : "a b%%41?#") +
                            "')\"; mkdir \"$TMPDIR\"";
    LaunchedJob job(setting, 3);
    CHECK(job.Wait() == 0);
    INFO(job.output());
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("Checks that pass are one line; the report has each with its time") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.2 slots=1\n127.0.0.3 slots=1\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  INFO(job.output());
  CHECK(job.output().find("preflight: 13 checks passed on 2 nodes in ") != std::string::npos);
  const Value report = Report(job, "127.0.0.3");
  for (const char* name : {"reachability", "versions", "clock", "disk", "shared-output", "open-files", "locked-memory",
                           "processes", "shm", "slots", "containment", "gpu-state", "worker"}) {
    CAPTURE(name);
    const Value check = CheckOf(report, name);
    CHECK(Text(check, "status") == "passed");
    CHECK(Text(check, "milliseconds") != "absent");
  }
  CHECK(Text(CheckOf(report, "reachability"), "text").find("1 other node on the data interface") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("All that fails is told, on every node; skipping it is told too, in an event and the summary") {
  LaunchSetting setting = OnGpus("lost=1;-", {"--skip-check", "shm"});
  setting.hosts = "127.0.0.3 slots=40\n127.0.0.4 slots=1\n";
  setting.shell_prelude = "ulimit -n 200";
  {
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 3);
    INFO(job.output());
    CHECK(job.output().find("preflight: open-files on 127.0.0.3: ") != std::string::npos);
    CHECK(job.output().find("preflight: gpu-state on 127.0.0.[3,4]: GPU 0 has fallen off the bus") !=
          std::string::npos);
    CHECK(job.output().find("preflight: slots on 127.0.0.3: ") != std::string::npos);
    int events = 0;
    for (const Value& event : job.Lines("events.jsonl")) events += Text(event, "event") == "preflight";
    CHECK(events >= 4);
    CHECK(job.HasEvent("preflight_skipped"));
    CHECK(job.Summary().Find("skipped_checks")->items.size() == 1);
    CHECK(Text(CheckOf(Report(job, "127.0.0.4"), "gpu-state"), "status") == "failed");
    CHECK(Text(CheckOf(Report(job, "127.0.0.4"), "shm"), "status") == "skipped");
    CHECK(job.NothingLeft());
  }
  setting.arguments.insert(setting.arguments.begin(), {"--skip_check=gpu-state,slots,open-files"});
  LaunchedJob job(setting);
  const int code = job.Wait();  // 200 descriptors are too few for 40 ranks, and that was skipped: what happens, happens
  INFO(job.output());
  CHECK(code != 3);
  CHECK(job.output().find("checks that were not made: open-files, shm, slots, gpu-state") != std::string::npos);
  CHECK(job.Summary().Find("skipped_checks")->items.size() == 4);
  CHECK(job.NothingLeft());
}

TEST_CASE("An unknown check to skip is an error that lists them") {
  LaunchSetting setting;
  setting.arguments = {"--skip-check", "disk,gpu", "--", "true"};
  {
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 2);
    CHECK(job.output().find("--skip-check disk,gpu: `gpu` is no check of the preflight; these are: reachability,") !=
          std::string::npos);
  }
  setting.arguments = {"--set", "launch.skip_checks=[disk, nothing]", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 2);
  CHECK(job.output().find("`nothing` is no check of the preflight") != std::string::npos);
}

TEST_CASE("GPUs in a bad state: each said, with what to do") {
  struct Case {
    const char* gpus;
    int code;
    const char* text;
  };
  const Case cases[] = {
      {"-", 0, "checks passed"},
      {"ecc=3", 3, "preflight: gpu-state on 127.0.0.3: GPU 0 has had 3 uncorrected memory errors (ECC)"},
      {"-;retired=1", 3, "GPU 1 has memory pages to retire: reset it (nvidia-smi -r -i 1)"},
      {"remap=1", 3, "GPU 0 has memory rows to remap"},
      {"remap_failed=1", 3, "GPU 0 could not remap a bad memory row: have it replaced"},
      {"lost=1;-", 3, "GPU 0 has fallen off the bus: restart the node"},
      {"reset=1", 3, "GPU 0 must be reset"},
      {"mode=2", 3, "GPU 0 lets no program compute"},
      {"mode=3,pid=77,held=1073741824", 3, "GPU 0 is used by other processes (77), which hold 1.0 GiB of it, and its"},
      {"pid=77,held=1073741824", 0, "preflight warning: gpu-state on 127.0.0.3: GPU 0 is used by other processes (77)"},
      {"mig=1", 0, "preflight warning: gpu-state on 127.0.0.3: GPU 0 is divided (MIG is on)"},
      {"throttle=0x40", 0, "preflight warning: gpu-state on 127.0.0.3: GPU 0 is slowed down because it is hot"},
      {"throttle=0x88", 0, "GPU 0 is slowed down by its power supply"},
      {"throttle=0x5", 0, "checks passed"},  // idle, or at its power cap: no fault
      {"init=18", 3, "the NVIDIA driver and its library are of different versions"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.gpus);
    LaunchedJob job(OnGpus(c.gpus));
    CHECK(job.Wait() == c.code);
    INFO(job.output());
    CHECK(job.output().find(c.text) != std::string::npos);
    if (c.code == 3) CHECK(CauseOf(job.Summary(), "kind") == "preflight");
  }
}

TEST_CASE("GPUs that the job may not use are not its affair") {
  LaunchSetting setting = OnGpus("-;ecc=3;lost=1");
  setting.environment["CUDA_VISIBLE_DEVICES"] = "0";
  LaunchedJob job(setting);
  CHECK(job.Wait() == 0);
  INFO(job.output());
  CHECK(job.output().find("checks passed") != std::string::npos);
}

TEST_CASE("A full disk at the output: said before anything is trained, with what it takes") {
  // A file system of 2 MiB of our own; without the right to mount one this cannot be shown here.
  if (::geteuid() != 0) {
    WARN("not tested: mounting a file system needs root");
    return;
  }
  ds::test::TemporaryFolder folder;
  if (std::system(("mount -t tmpfs -o size=2m none " + folder.path()).c_str()) != 0) {
    WARN("not tested: no file system can be mounted here");
    return;
  }
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=1\n";
  setting.shared_output = true;
  setting.arguments = {"fake.yaml", "--hostfile", "hosts", "--output", folder.path(), "--set", "checkpoint.every=10"};
  {
    LaunchedJob job(setting);
    CHECK(job.Wait() == 3);
    INFO(job.output());
    CHECK(job.output().find("preflight: disk on 127.0.0.3: ") != std::string::npos);
    CHECK(job.output().find("needed for 3 checkpoints (checkpoint.keep is 2, and one is being written); free space or "
                            "set checkpoint.keep") != std::string::npos);
    CHECK(CauseOf(job.Summary(), "message").find("disk on 127.0.0.3") == 0);
    // Once when it is found, once as the cause of the end.
    const std::string output = job.output();
    size_t told = 0;
    for (size_t at = 0; (at = output.find("needed for 3 checkpoints", at)) != std::string::npos; ++at) ++told;
    CHECK(told == 2);
    CHECK(job.NothingLeft());
  }
  {
    // What no node could run is not hidden by it.
    setting.arguments.insert(setting.arguments.end(), {"--set", "model.preset=llama-8b", "--set", "model.layers=120"});
    LaunchedJob job(setting);
    CHECK(job.Wait(60) == 2);
    INFO(job.output());
    CHECK(job.output().find("preflight: disk on 127.0.0.3: ") != std::string::npos);
    CHECK(CauseOf(job.Summary(), "message").find("; besides, disk on 127.0.0.3: ") != std::string::npos);
    CHECK(job.NothingLeft());
  }
  CHECK(std::system(("umount " + folder.path()).c_str()) == 0);
}

TEST_CASE("Too few processes: said at preflight") {
  if (!ds::test::OthersMayRun()) return;
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=64\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  // Root is not held to the limit, so somebody else runs it.
  setting.shell_prelude =
      "chmod -R a+rwX . && set -- prlimit --nproc=80:80 setpriv --reuid=65533 --regid=65533 --clear-groups "
      "--inh-caps=-all \"$@\"";
  LaunchedJob job(setting);
  const int code = job.Wait();
  INFO(job.output());
  REQUIRE(code == 3);
  CHECK(job.output().find("preflight: processes on 127.0.0.3: only ") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A worker that the kernel ended for want of memory: named so") {
  ds::test::TemporaryFolder group;  // stands for the agent's control group
  std::ofstream(group.path() + "/memory.events") << "oom_kill 0\n";
  std::ofstream(group.path() + "/memory.max") << (int64_t{64} << 20) << "\n";
  LaunchSetting setting;
  setting.environment = {{"DS_CGROUP", group.path()}};
  setting.arguments = {"--num-gpus", "1",  "--",
                       "sh",         "-c", "echo oom_kill 1 > " + group.path() + "/memory.events; kill -9 $$"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 137);
  INFO(job.output());
  CHECK(CauseOf(job.Summary(), "kind") == "worker_signal");
  CHECK(CauseOf(job.Summary(), "message")
            .find("killed by signal 9 (SIGKILL): the kernel's out-of-memory killer ended "
                  "it (counted in " +
                  group.path() + "/memory.events; the limit is 64 MiB") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A worker in a memory control group that the kernel ended") {
  const std::vector<ds::CgroupFolder> groups = ds::CgroupFolders("memory");
  std::string controllers;
  if (!groups.empty() && groups[0].unified) {
    std::ifstream file(groups[0].path / "cgroup.subtree_control");
    std::getline(file, controllers);
  }
  const fs::path group = groups.empty() ? "" : groups[0].path / ("ds-test-memory-" + std::to_string(::getpid()));
  std::error_code error;
  if (controllers.find("memory") == std::string::npos || !fs::create_directory(group, error)) {
    WARN("not tested: this process may not make a control group (version 2) with a memory limit here");
    return;
  }
  std::ofstream(group / "memory.max") << (int64_t{64} << 20) << "\n";
  std::ofstream(group / "memory.swap.max") << 0 << "\n";
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "1",  "--set", "launch.contain=process",
      "--",         "sh", "-c",    "echo 0 > " + (group / "cgroup.procs").string() + " && exec tail /dev/zero"};
  LaunchedJob job(setting);
  CHECK(job.Wait() == 137);
  INFO(job.output());
  CHECK(CauseOf(job.Summary(), "message").find("the kernel's out-of-memory killer ended it") != std::string::npos);
  CHECK(job.NothingLeft());
  fs::remove(group, error);
}

TEST_CASE("ds-report shows several nodes and whether they differ") {
  LaunchSetting setting;
  setting.program = "ds-report";
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";
  setting.arguments = {"--hostfile", "hosts"};
  LaunchedJob report(setting);
  REQUIRE(report.Wait() == 0);
  CHECK(report.output().find("127.0.0.[1,2]") != std::string::npos);  // alike: one column
  CHECK(report.output().find("The nodes do not differ.") != std::string::npos);
  CHECK(report.output().find("\n  gpu-state") != std::string::npos);
  CHECK(report.output().find('\x1b') == std::string::npos);
  CHECK(report.NothingLeft());
}

TEST_CASE("ds-report: exit code 3 where a check failed, an object a node with --json, skipping") {
  LaunchSetting setting = OnGpus("ecc=1;-");
  setting.program = "ds-report";
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";
  setting.arguments = {"--hostfile", "hosts"};
  {
    LaunchedJob report(setting);
    CHECK(report.Wait() == 3);
    CHECK(report.output().find("preflight: gpu-state on 127.0.0.[1,2]: GPU 0 has had 1 uncorrected") !=
          std::string::npos);
  }
  setting.arguments.push_back("--json");
  {
    LaunchedJob report(setting);
    CHECK(report.Wait() == 3);
    std::istringstream lines(report.output());
    int objects = 0;
    for (std::string line; std::getline(lines, line); ++objects) {
      const Value node = ds::ParseJson(line, "line");
      CHECK(Text(CheckOf(node, "gpu-state"), "status") == "failed");
      CHECK(node.Find("containment"));
    }
    CHECK(objects == 2);
  }
  setting.arguments = {"--hostfile", "hosts", "--skip-check", "gpu-state"};
  {
    LaunchedJob report(setting);
    CHECK(report.Wait() == 0);
    CHECK(report.output().find("gpu-state            skipped") != std::string::npos);
  }
  setting.arguments = {"--skip-check", "gpus"};
  LaunchedJob report(setting);
  CHECK(report.Wait() == 2);
  CHECK(report.output().find("these are: reachability,") != std::string::npos);
}
