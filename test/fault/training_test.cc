// Real training over real agents: many processes, and a worker killed in the middle.
#include <signal.h>

#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::Value;
using ds::test::CauseOf;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

LaunchSetting Training(const std::string& hosts, std::vector<std::string> more = {}) {
  LaunchSetting setting;
  setting.hosts = hosts;
  setting.arguments = {"fake.yaml",
                       "--hostfile",
                       "hosts",
                       "--set",
                       "data.sequence_length=32",
                       "--set",
                       "deepspeed.zero_optimization.stage=2"};
  setting.arguments.insert(setting.arguments.end(), more.begin(), more.end());
  setting.environment = {{"DS_WORKER_PROGRAM", std::string(DS_BIN_DIR) + "/ds-worker"}};
  return setting;
}

std::vector<std::string> Losses(const LaunchedJob& job) {
  std::vector<std::string> losses;
  for (const Value& line : job.Lines("metrics.jsonl")) losses.push_back(Text(line, "loss"));
  return losses;
}

}  // namespace

TEST_CASE("Eight workers over four agents train to the same losses, bit for bit, as over one") {
  LaunchedJob four(Training("127.0.0.1 slots=2\n127.0.0.2 slots=2\n127.0.0.3 slots=2\n127.0.0.4 slots=2\n"), 4);
  REQUIRE(four.Wait(120) == 0);
  CHECK(four.NothingLeft());
  LaunchedJob one(Training("localhost slots=8\n"), 4);
  REQUIRE(one.Wait(120) == 0);
  REQUIRE(Losses(four).size() == 4);
  CHECK(Losses(four) == Losses(one));
}

TEST_CASE("A worker killed while it trains: its peers are victims, the restart resumes from the checkpoint") {
  LaunchSetting setting =
      Training("127.0.0.1 slots=1\n127.0.0.2 slots=1\n", {"--set", "launch.restarts=1", "--set", "checkpoint.every=2"});
  setting.environment["DS_FAILPOINT"] = "step:5/end,rank=1,attempt=1,kill";
  LaunchedJob job(setting, 8);
  REQUIRE(job.Wait(60) == 0);
  CHECK(job.NothingLeft());
  CHECK(Text(job.Summary(), "attempts") == "2");
  CHECK(job.HasEvent("restart"));
  std::vector<Value> lines = job.Lines("metrics.jsonl");
  CHECK(Text(lines.back(), "step") == "8");
  CHECK(Text(lines.back(), "attempt") == "2");
  size_t resumed = 0;
  while (Text(lines[resumed], "attempt") == "1") ++resumed;
  CHECK(Text(lines[resumed], "step") == "5");
}

TEST_CASE("kill -9 of a training worker: the signal is the cause, not its peers' broken connections") {
  LaunchedJob job(Training("127.0.0.1 slots=1\n127.0.0.2 slots=2\n"));
  REQUIRE(job.WaitForStep(2));
  ::kill(job.Worker(1), SIGKILL);
  REQUIRE(job.Wait(30) == 137);
  CHECK(job.NothingLeft());
  CHECK(CauseOf(job.Summary(), "rank") == "1");
  CHECK(CauseOf(job.Summary(), "signal") == "9");
}
