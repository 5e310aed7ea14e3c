// Programs that are not ours under the same agents: their environment, arguments and output byte for byte, their exit
// codes, none lost.
#include <signal.h>
#include <time.h>

#include <algorithm>

#include "runtime/base/json.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::test::CauseOf;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

TEST_CASE("Arguments and exported variables arrive byte for byte") {
  std::string awkward = "a b\t$HOME `id` \"q\" 'q' \\ \xff {\"json\": [1, \"x\"]}\nnext=line\\";
  LaunchSetting setting;
  setting.environment = {{"HERE", awkward}};
  setting.arguments = {"--num_gpus", "1", "--export", "DOTTED.NAME=" + awkward, "--export", "HERE", "--"};
  SECTION("arguments") {
    for (const std::string& argument :
         {std::string("printf"), std::string("%s|%s|"), std::string("--num_gpus"), awkward}) {
      setting.arguments.push_back(argument);
    }
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    CHECK(job.Log(0) == "--num_gpus|" + awkward + "|\n");
    CHECK(job.NothingLeft());
  }
  SECTION("variables") {
    setting.arguments.push_back("env");
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    CHECK(job.Log(0).find("\nDOTTED.NAME=" + awkward + "\n") != std::string::npos);
    CHECK(job.Log(0).find("GRPC_ENABLE_FORK_SUPPORT") ==
          std::string::npos);  // what our programs set for themselves stays with them
    CHECK(job.Log(0).find("\nHERE=" + awkward + "\n") != std::string::npos);
    CHECK(job.NothingLeft());
  }
}

TEST_CASE("Ranks know their places, on each node from 0") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=2\n";
  setting.arguments = {"--hostfile", "hosts", "--",
                       "sh",         "-c",    "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(job.Log(0) == "0/3 0/1 127.0.0.1\n");
  CHECK(job.Log(1) == "1/3 0/2 127.0.0.1\n");
  CHECK(job.Log(2) == "2/3 1/2 127.0.0.1\n");
}

TEST_CASE("Programs that end at once: none is lost") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "64", "--", "true"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(job.NothingLeft());
}

TEST_CASE("The first failure is the job's, not what its peers are ended with") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "3", "--", "sh", "-c", "[ $RANK = 1 ] && exit 7; exec sleep 1000"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 7);
  CHECK(CauseOf(job.Summary(), "rank") == "1");
  CHECK(job.NothingLeft());
}

TEST_CASE("Ctrl-C ends programs, whatever they left in other sessions, with 130") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2", "--", "sh", "-c", "setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 1000"};
  LaunchedJob job(setting);
  REQUIRE(ds::test::Eventually(10, [&] { return job.Workers().size() >= 6; }));
  job.Signal(SIGINT);
  REQUIRE(job.Wait(10) == 130);
  CHECK(job.NothingLeft());
}

TEST_CASE("Programs get the signal that came, all at once, and have the grace that was set") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus",
      "2",
      "--set",
      "launch.grace_seconds=60",
      "--",
      "sh",
      "-c",
      "exec 2>/dev/null; trap 'echo saved' USR1; trap 'echo hung up; sleep 1; echo done; exit 0' HUP; echo ready; "
      "while :; do sleep 0.1; done"};
  LaunchedJob job(setting);
  auto all_say = [&](const std::string& text) {
    return ds::test::Eventually(
        10, [&] { return job.Log(0).find(text) != std::string::npos && job.Log(1).find(text) != std::string::npos; });
  };
  REQUIRE(all_say("ready"));
  job.Signal(SIGUSR1);
  REQUIRE(all_say("saved"));  // and they go on
  job.Signal(SIGHUP);
  REQUIRE(job.Wait(10) == 128 + SIGHUP);
  CHECK(all_say("hung up\ndone"));
  CHECK(job.NothingLeft());
}

TEST_CASE("SIGUSR1 that a program ends by is a preemption") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2",  "--",
                       "sh",         "-c", "trap 'exit 0' USR1; echo ready; while :; do sleep 0.1; done"};
  LaunchedJob job(setting);
  REQUIRE(ds::test::Eventually(10, [&] { return job.Log(0) + job.Log(1) == "ready\nready\n"; }));
  job.Signal(SIGUSR1);
  REQUIRE(job.Wait(10) == 128 + SIGUSR1);
  CHECK(Text(job.Summary(), "status") == "preempted");
  CHECK(job.NothingLeft());
}

TEST_CASE("kill -9 of a worker: its peers on the node are signalled within 50 ms") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "4", "--", DS_BIN_DIR "/test-fault-worker", "--signal-clock"};
  // The documented time is for a machine with a core to spare: here the best of a few jobs counts, each within a
  // second.
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    LaunchedJob job(setting);
    for (int rank : {0, 1, 2, 3}) {
      REQUIRE(ds::test::Eventually(10, [&] { return job.Log(rank).find("\n") != std::string::npos; }));
    }
    const pid_t victim = std::stoi(job.Log(1).substr(sizeof "ready " - 1));
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ::kill(victim, SIGKILL);
    REQUIRE(job.Wait(10) == 137);
    double slowest = 0;
    for (int rank : {0, 2, 3}) {
      std::string log = job.Log(rank);
      REQUIRE(log.find("signal 15 at ") != std::string::npos);
      double at = std::stod(log.substr(log.find(" at ") + 4));
      slowest = std::max(slowest, at - (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9));
    }
    CHECK(slowest < 1);
    best = std::min(best, slowest);
  }
  WARN("the last of 3 peers was signalled " << best * 1e3 << " ms after the kill");
  CHECK(best < 0.05);
}

TEST_CASE("Floods, long lines, NUL bytes and a missing last newline reach the log whole") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "2",  "--",
      "sh",         "-c", "seq 1 100000; head -c 3000000 /dev/zero | tr '\\0' y; echo; printf 'a\\0b\\n'; printf end"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait(30) == 0);
  for (int rank : {0, 1}) {
    std::string log = job.Log(rank);
    std::string numbers;
    for (int i = 1; i <= 100000; ++i) numbers += std::to_string(i) + "\n";
    CHECK(log.substr(0, numbers.size()) == numbers);
    std::string rest = log.substr(numbers.size());
    // A line over 1 MiB is written in pieces.
    const std::string piece = std::string(1 << 20, 'y') + "\n";
    CHECK((rest == piece + piece + std::string(3000000 - (2 << 20), 'y') + "\n" + std::string("a\0b\n", 4) + "end\n"));
  }
}

TEST_CASE("A program that cannot be started says why") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2", "--", "/does/not/exist"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 127);
  CHECK(CauseOf(job.Summary(), "message").find("cannot start /does/not/exist") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A program is restarted as often as its budget says, however soon it ends") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "1",  "--set", "launch.restarts=3",
      "--",         "sh", "-c",    "echo run $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 3 ]"};
  LaunchedJob job(setting);
  CHECK(job.Wait() == 0);
  CHECK(job.Log(0) == "run 0\nrun 1\nrun 2\nrun 3\n");
  CHECK_FALSE(job.HasEvent("restart_refused"));
  setting.arguments[3] = "launch.restarts=2";
  LaunchedJob fewer(setting);
  CHECK(fewer.Wait() == 1);
  CHECK(fewer.Log(0) == "run 0\nrun 1\nrun 2\n");
  CHECK(fewer.NothingLeft());
}

TEST_CASE("A program whose interpreter is not there: 127, and which one is meant") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "./script"};
  setting.shell_prelude = "printf '#!/no/such/interpreter -x\\n' >script; chmod +x script";
  LaunchedJob job(setting);
  CHECK(job.Wait() == 127);
  CHECK(CauseOf(job.Summary(), "message")
            .find(": its first line names the interpreter /no/such/interpreter, which is not there") !=
        std::string::npos);
  CHECK(CauseOf(job.Summary(), "code") == "127");
}
