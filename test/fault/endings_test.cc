// Every ending names its first cause, has its exit code, and leaves no process and no file behind. Deadlines asserted
// are the documented ones (docs/operations.md) with room for a busy machine.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::Value;
using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

constexpr char kTwoHosts[] = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";

/// fake.yaml on two agents of two workers.
LaunchSetting TwoAgents(std::map<std::string, std::string> environment = {}, std::vector<std::string> more = {}) {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml", "--hostfile", "hosts"};
  setting.arguments.insert(setting.arguments.end(), more.begin(), more.end());
  setting.environment = std::move(environment);
  setting.hosts = kTwoHosts;
  return setting;
}

}  // namespace

TEST_CASE("A job that completes leaves its run directory and nothing else") {
  LaunchedJob job(TwoAgents(), 30);
  REQUIRE(job.Wait() == 0);
  CHECK(job.NothingLeft());
  std::vector<Value> metrics = job.Lines("metrics.jsonl");
  REQUIRE(metrics.size() == 30);
  for (size_t i = 0; i < metrics.size(); ++i) CHECK(Text(metrics[i], "step") == std::to_string(i + 1));
  Value summary = job.Summary();
  CHECK(Text(summary, "status") == "completed");
  CHECK(Text(summary, "exit_code") == "0");
  CHECK(summary.Find("cause")->is_null());
  CHECK(Text(summary, "world") == "4");
  CHECK(job.Log(3).find("rank 3 of 4, local rank 1, ") == 0);
  CHECK(job.Log(3).find("127.0.0.2") != std::string::npos);
}

TEST_CASE("A run whose end cannot be written has not completed") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "sh", "-c", "while [ ! -e \"$GO\" ]; do sleep 0.05; done"};
  const ds::test::TemporaryFolder folder;
  const std::string go = folder.path() + "/go";
  setting.environment = {{"GO", go}};
  LaunchedJob job(setting);
  const std::string in_the_way = job.run_directory() + "/summary.json";
  REQUIRE(std::filesystem::create_directory(in_the_way));
  std::ofstream(in_the_way + "/file") << "a folder that no file can replace";
  std::ofstream(go) << "";
  REQUIRE(job.Wait() == 1);
  CHECK(job.output().find("the run directory cannot be written: ") != std::string::npos);
  CHECK(job.output().find("failed (exit code 1): it completed, but its end is in no file") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("nohup: a SIGHUP that was ignored from the start ends nothing; a SIGALRM from outside never does") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "sleep", "3"};
  setting.shell_prelude = "trap '' HUP";
  LaunchedJob job(setting);
  REQUIRE(Eventually(10, [&] { return !job.Workers().empty(); }));
  job.Signal(SIGHUP);
  job.Signal(SIGALRM);
  REQUIRE(job.Wait() == 0);
  CHECK(Text(job.Summary(), "status") == "completed");
  CHECK(job.NothingLeft());
}

TEST_CASE("The first rank to fail gives its exit code; ranks that end because of it are its victims") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "2@5=exit:7"}}));
  REQUIRE(job.Wait() == 7);
  CHECK(job.NothingLeft());
  Value summary = job.Summary();
  CHECK(Text(summary, "status") == "failed");
  CHECK(CauseOf(summary, "kind") == "worker_exit");
  CHECK(CauseOf(summary, "rank") == "2");
  CHECK(CauseOf(summary, "host") == "127.0.0.2");
  CHECK(CauseOf(summary, "code") == "7");
  CHECK(CauseOf(summary, "message").find("a fault was injected") != std::string::npos);
  CHECK(summary.Find("victims")->items.size() == 3);
  CHECK(job.output().find("last lines of rank 2") != std::string::npos);
}

TEST_CASE("kill -9 of a worker: 137, the worker named") {
  LaunchedJob job(TwoAgents());
  REQUIRE(job.WaitForStep(5));
  ::kill(job.Worker(3), SIGKILL);
  REQUIRE(job.Wait() == 137);
  CHECK(job.NothingLeft());
  Value summary = job.Summary();
  CHECK(CauseOf(summary, "kind") == "worker_signal");
  CHECK(CauseOf(summary, "signal") == "9");
  CHECK(CauseOf(summary, "rank") == "3");
  CHECK(CauseOf(summary, "host") == "127.0.0.2");
}

TEST_CASE("SIGTERM to a worker while workers link up: its peers do not wait for it") {
  for (int delay_ms : {0, 20, 60, 150}) {
    LaunchedJob job(TwoAgents());
    const pid_t worker = job.Worker(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    ::kill(worker, SIGTERM);
    const auto begin = std::chrono::steady_clock::now();
    REQUIRE(job.Wait(20) == 143);  // it died of it, or passed on that it was told to stop
    INFO(delay_ms << " ms after its start\n" << job.output());
    CHECK(!job.HasEvent("kill"));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4));
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("kill -9 of an agent: 4, host and signal named, its workers and their children gone") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "2@2=child"}}));
  REQUIRE(job.WaitForStep(5));
  ::kill(job.Agent("127.0.0.2"), SIGKILL);
  REQUIRE(job.Wait() == 4);
  CHECK(job.NothingLeft());
  Value summary = job.Summary();
  CHECK(CauseOf(summary, "kind") == "node_lost");
  CHECK(CauseOf(summary, "signal") == "9");
  CHECK(CauseOf(summary, "host") == "127.0.0.2");
}

TEST_CASE("A signal while agents come up ends the job at once; SIGQUIT is one") {
  LaunchedJob job(TwoAgents());
  job.run_directory();
  job.Signal(SIGQUIT);
  REQUIRE(job.Wait(5) == 128 + SIGQUIT);
  CHECK(job.NothingLeft());
  CHECK(Text(job.Summary(), "status") == "interrupted");
}

TEST_CASE("SIGTERM to an agent: 4, and that signal is named, not our own") {
  LaunchedJob job(TwoAgents());
  REQUIRE(job.WaitForStep(5));
  ::kill(job.Agent("127.0.0.2"), SIGTERM);
  REQUIRE(job.Wait() == 4);
  CHECK(job.NothingLeft());
  CHECK(CauseOf(job.Summary(), "signal") == "15");
}

TEST_CASE("kill -9 of the launcher: agents, workers and their children end within 2 s") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "1@2=child"}}));
  REQUIRE(job.WaitForStep(5));
  REQUIRE(job.Workers().size() == 5);
  job.Signal(SIGKILL);
  REQUIRE(job.Wait() == 137);
  CHECK(job.NothingLeft(4));
  CHECK(job.Leftovers() == std::vector<std::string>{});  // names what is left
}

TEST_CASE("kill -9 of the launcher wakes a stopped agent, which ends its workers") {
  LaunchedJob job(TwoAgents());
  REQUIRE(job.WaitForStep(2));
  ::kill(job.Agent("127.0.0.1"), SIGSTOP);
  job.Signal(SIGKILL);
  job.Wait();
  CHECK(job.NothingLeft(5));
}

TEST_CASE("A file size limit fails the job with its reason") {
  LaunchSetting setting = TwoAgents();
  setting.shell_prelude = "ulimit -f 4";
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 1);
  CHECK(job.output().find("File too large") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("Ctrl-C once: the step is finished, a checkpoint taken, 130") {
  LaunchedJob job(TwoAgents());
  REQUIRE(job.WaitForStep(5));
  job.Signal(SIGINT);
  REQUIRE(job.Wait() == 130);
  CHECK(job.NothingLeft());
  Value summary = job.Summary();
  CHECK(Text(summary, "status") == "interrupted");
  CHECK(CauseOf(summary, "kind") == "signal");
  CHECK(CauseOf(summary, "signal") == "2");
  CHECK(job.HasEvent("checkpoint"));
}

TEST_CASE("Ctrl-C twice: deaf workers are killed at once") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "0@5=deaf;1@5=deaf"}}, {"--set", "launch.grace_seconds=600"}));
  REQUIRE(job.WaitForStep(5));
  job.Signal(SIGINT);
  REQUIRE(Eventually(10, [&] { return job.HasEvent("signal"); }));
  job.Signal(SIGINT);
  REQUIRE(job.Wait(10) == 130);
  CHECK(job.NothingLeft());
}

TEST_CASE("SIGTERM: 143; workers that do not end within grace_seconds are killed") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "1@5=deaf"}}, {"--set", "launch.grace_seconds=0.5"}));
  REQUIRE(job.WaitForStep(5));
  job.Signal(SIGTERM);
  REQUIRE(job.Wait(10) == 143);
  CHECK(job.NothingLeft());
  CHECK(job.HasEvent("kill"));
}

TEST_CASE("No step for progress_seconds: 5, the rank that lags named") {
  LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "2@60=stop"}}, {"--set", "launch.progress_seconds=1.5"}));
  REQUIRE(job.Wait(30) == 5);
  CHECK(job.NothingLeft());
  Value summary = job.Summary();
  CHECK(CauseOf(summary, "kind") == "no_progress");
  CHECK(CauseOf(summary, "rank") == "2");
}

TEST_CASE("A stopped agent is suspected, not declared dead, and may come back") {
  LaunchedJob job(TwoAgents({}, {"--set", "launch.suspect_seconds=1.5", "--set", "launch.lease_seconds=600"}), 250);
  REQUIRE(job.WaitForStep(5));
  pid_t agent = job.Agent("127.0.0.2");
  ::kill(agent, SIGSTOP);
  bool suspected = Eventually(10, [&] { return job.HasEvent("suspect"); });
  ::kill(agent, SIGCONT);
  CHECK(suspected);
  REQUIRE(job.Wait(30) == 0);
  CHECK(job.HasEvent("recovered"));
  CHECK(job.NothingLeft());
}

TEST_CASE("An agent silent for lease_seconds is lost: 4, nothing left of it either") {
  LaunchedJob job(TwoAgents({}, {"--set", "launch.suspect_seconds=1", "--set", "launch.lease_seconds=2.5"}));
  REQUIRE(job.WaitForStep(5));
  ::kill(job.Agent("127.0.0.2"), SIGSTOP);
  REQUIRE(job.Wait(40) == 4);
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.2");
  CHECK(job.NothingLeft());
}

TEST_CASE("Restarts go on in the same run, and end when no step is done in between") {
  SECTION("a fault that passes") {
    LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "1@5#1=signal:11"}}, {"--set", "launch.restarts=1"}), 20);
    REQUIRE(job.Wait() == 0);
    CHECK(Text(job.Summary(), "attempts") == "2");
    CHECK(Text(job.Lines("metrics.jsonl").back(), "attempt") == "2");
  }
  SECTION("a fault that stays") {
    LaunchedJob job(TwoAgents({{"DS_TEST_FAULTS", "1@1=exit:9"}}, {"--set", "launch.restarts=2"}), 20);
    REQUIRE(job.Wait() == 9);
    CHECK(Text(job.Summary(), "exit_code") == "9");
  }
}

TEST_CASE("min_nodes: after a lost node the job goes on with those left, ranks renumbered, the batch kept") {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml",
                       "--hostfile",
                       "hosts",
                       "--set",
                       "launch.min_nodes=1",
                       "--set",
                       "deepspeed.train_batch_size=12",
                       "--set",
                       "deepspeed.train_micro_batch_size_per_gpu=2"};
  setting.hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n127.0.0.3 slots=2\n";
  setting.environment = {{"DS_TEST_STEP_MS", "20"}};
  LaunchedJob job(setting, 200);
  REQUIRE(job.WaitForStep(5));
  ::kill(job.Agent("127.0.0.2"), SIGKILL);
  REQUIRE(Eventually(20, [&] {
    std::vector<Value> lines = job.Lines("metrics.jsonl");
    return !lines.empty() && Text(lines.back(), "attempt") == "2";
  }));
  // The first node may be lost as well: the rendezvous is the launcher's.
  ::kill(job.Agent("127.0.0.1"), SIGKILL);
  REQUIRE(job.Wait(40) == 0);
  INFO(job.output());
  Value summary = job.Summary();
  CHECK(Text(summary, "status") == "completed");
  CHECK(Text(summary, "attempts") == "3");
  CHECK(Text(summary, "world") == "2");
  CHECK(job.output().find("on 2 of 3 nodes (127.0.0.1, 127.0.0.3), 4 ranks, micro-batch 1 x accumulation 3 x 4 = 12 "
                          "samples a step") != std::string::npos);
  CHECK(job.output().find("on 1 of 3 nodes (127.0.0.3), 2 ranks, micro-batch 2 x accumulation 3 x 2 = 12") !=
        std::string::npos);
  CHECK(job.Log(1).find("rank 1 of 2, local rank 1, ") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("min_nodes: hosts beyond what divides the batch are spares, and step in; below min_nodes the cause stays") {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml",
                       "--hostfile",
                       "hosts",
                       "--set",
                       "launch.min_nodes=2",
                       "--set",
                       "deepspeed.train_batch_size=4",
                       "--set",
                       "deepspeed.train_micro_batch_size_per_gpu=1"};
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n127.0.0.3 slots=1\n";
  LaunchedJob job(setting, 100000);
  REQUIRE(job.WaitForStep(5));
  CHECK(job.output().find("2 ranks on 2 nodes, the others are spares") != std::string::npos);
  ::kill(job.Agent("127.0.0.1"), SIGKILL);
  REQUIRE(Eventually(20, [&] {
    std::vector<Value> lines = job.Lines("metrics.jsonl");
    return !lines.empty() && Text(lines.back(), "attempt") == "2";
  }));
  CHECK(job.output().find("on 2 of 3 nodes (127.0.0.2, 127.0.0.3), 2 ranks") != std::string::npos);
  ::kill(job.Agent("127.0.0.3"), SIGKILL);
  REQUIRE(job.Wait(30) == 4);
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.3");
  CHECK(job.output().find("1 node left, and launch.min_nodes is 2") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("On a terminal the view is redrawn in place and Ctrl-C reaches the launcher alone") {
  LaunchSetting setting = TwoAgents({{"TERM", "xterm"}});
  setting.terminal = true;
  LaunchedJob job(setting);
  REQUIRE(job.WaitForStep(5));
  job.Type("\x03");
  REQUIRE(job.Wait() == 130);
  CHECK(job.NothingLeft());
  CHECK(job.HasEvent("checkpoint"));  // workers were asked, not interrupted
  CHECK(job.output().find("\x1b[J") != std::string::npos);
  CHECK(job.output().find("tokens/s") != std::string::npos);
}
