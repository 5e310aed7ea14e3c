// Programs that are not ours under the same agents: their environment, arguments and output byte for byte, their exit
// codes, none lost.
#include <signal.h>

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

TEST_CASE("Floods, long lines, NUL bytes and a missing last newline reach the log whole") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "2",  "--",
      "sh",         "-c", "seq 1 100000; head -c 100000 /dev/zero | tr '\\0' y; echo; printf 'a\\0b\\n'; printf end"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait(30) == 0);
  for (int rank : {0, 1}) {
    std::string log = job.Log(rank);
    std::string numbers;
    for (int i = 1; i <= 100000; ++i) numbers += std::to_string(i) + "\n";
    CHECK(log.substr(0, numbers.size()) == numbers);
    std::string rest = log.substr(numbers.size());
    // A line over 64 KiB is written in pieces.
    CHECK(rest == std::string(65536, 'y') + "\n" + std::string(100000 - 65536, 'y') + "\n" + std::string("a\0b\n", 4) +
                      "end\n");
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
