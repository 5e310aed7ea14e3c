// A rank that makes no progress is named, and what its threads do is in the run directory; a worker that does not
// answer is looked at from outside. Launch.progress_seconds is short here: a stall is told at half of it.
#include <signal.h>

#include <fstream>
#include <iterator>

#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::Value;
using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

LaunchSetting Hanging(const std::string& fault) {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml", "--hostfile", "hosts", "--set", "launch.progress_seconds=8"};
  setting.hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
  setting.environment = {{"DS_TEST_FAULTS", fault}};
  return setting;
}

std::string Stacks(const LaunchedJob& job, int rank) {
  std::ifstream file(job.run_directory() + "/stacks/rank-" + std::to_string(rank) + "-attempt-1.txt");
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

Value Event(const LaunchedJob& job, const std::string& kind) {
  for (Value& line : job.Lines("events.jsonl"))
    if (Text(line, "event") == kind) return line;
  FAIL("no event " << kind);
  return {};
}

}  // namespace

TEST_CASE("A rank that hangs is named before the job ends, with its stack; its peers' say that they wait") {
  LaunchedJob job(Hanging("2@60=hang"));
  REQUIRE(job.Wait(40) == 5);
  CHECK(CauseOf(job.Summary(), "rank") == "2");
  const Value stalled = Event(job, "stalled");
  CHECK(Text(stalled, "rank") == "2");
  CHECK(Text(stalled, "host") == "127.0.0.2");
  CHECK(Stacks(job, 2).find("HangInTheStep()") != std::string::npos);
  CHECK(Stacks(job, 0).find("ds::AgentLink::Get(") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A rank that is stopped cannot answer: what the kernel shows of it is kept") {
  LaunchedJob job(Hanging("1@60=stop"));
  REQUIRE(job.Wait(40) == 5);
  CHECK(CauseOf(job.Summary(), "rank") == "1");
  CHECK(Text(Event(job, "stalled"), "rank") == "1");
  CHECK(Stacks(job, 1).find("The worker is stopped; seen from outside") != std::string::npos);
  CHECK(Stacks(job, 1).find("): stopped") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A rank that goes on after a stall ends well") {
  LaunchedJob job(Hanging("3@60=stop"), 400);
  REQUIRE(Eventually(20, [&] { return job.HasEvent("stalled"); }));
  ::kill(job.Worker(3), SIGCONT);
  REQUIRE(job.Wait(30) == 0);
  CHECK(job.HasEvent("stall_over"));
  CHECK(job.NothingLeft());
}

TEST_CASE("Programs that do not end in their grace: what they are at is kept before they are killed") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2",  "--set", "launch.grace_seconds=0.5",
                       "--",         "sh", "-c",    "trap '' TERM; echo ready; while :; do sleep 100; done"};
  LaunchedJob job(setting);
  REQUIRE(Eventually(10, [&] { return job.Log(0) + job.Log(1) == "ready\nready\n"; }));
  job.Signal(SIGTERM);
  REQUIRE(job.Wait(10) == 143);
  CHECK(Stacks(job, 0).find("(sh): asleep") != std::string::npos);
  CHECK(Stacks(job, 1).find("(sleep): asleep, in ") != std::string::npos);
  CHECK(job.NothingLeft());
}
