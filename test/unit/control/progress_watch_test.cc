// Ranks that make no progress: far longer than they ever took, and who of them holds the others up. On a virtual clock.
#include "launcher/run/progress_watch.h"

#include <algorithm>

#include "launcher/run/job_monitor.h"
#include "test/catch.h"

namespace ds {
namespace {

const auto kAll = [](int) { return true; };

class Clock {
 public:
  MonitorTime At() const {
    return MonitorTime() + std::chrono::duration_cast<MonitorTime::duration>(std::chrono::duration<double>(now));
  }
  double now = 5000;
};

/// Four ranks that take steps of `seconds`, spoken of once a second.
void TakeSteps(ProgressWatch& watch, Clock& clock, int64_t from, int64_t to, double seconds) {
  for (int64_t step = from; step <= to; ++step) {
    clock.now += seconds;
    for (int rank = 0; rank < 4; ++rank) watch.Heard({rank, step, "training"}, clock.At());
  }
}

}  // namespace

TEST_CASE("A stall is far longer than what was learnt: ten times the slow steps, at least 10 s") {
  Clock clock;
  ProgressWatch watch(0);
  watch.Begin(4, clock.At());
  CHECK(watch.Limit("training") == 120);  // nothing was learnt
  TakeSteps(watch, clock, 1, 20, 0.5);
  CHECK(watch.Limit("training") == 10);
  CHECK(watch.Limit("checkpointing") == 120);
  clock.now += 9.5;
  CHECK(watch.Stalled(clock.At(), kAll).empty());
  clock.now += 1;
  CHECK(watch.Stalled(clock.At(), kAll).size() == 4);

  SECTION("slow steps are waited for longer") {
    ProgressWatch slow(0);
    slow.Begin(4, clock.At());
    TakeSteps(slow, clock, 1, 20, 4);
    CHECK(slow.Limit("training") == Approx(40));
    clock.now += 39;
    CHECK(slow.Stalled(clock.At(), kAll).empty());
  }
  SECTION("who moves within its step does not stall, however long the step is") {
    for (uint32_t action = 1; action <= 30; ++action) {
      clock.now += 5;
      for (int rank = 0; rank < 4; ++rank) {
        WorkerBeat beat{rank, 20, "training"};
        beat.action_index = rank == 2 ? 7 : action;
        watch.Heard(beat, clock.At());
      }
    }
    CHECK(watch.Stalled(clock.At(), kAll) == std::vector<int>{2});
  }
  SECTION("phases are learnt apart, as the workers timed them") {
    for (int64_t checkpoint = 1; checkpoint <= 3; ++checkpoint) {
      for (const char* state : {"checkpointing", "training"}) {
        clock.now += 3;
        for (int rank = 0; rank < 4; ++rank) {
          WorkerBeat beat{rank, 20, state};
          beat.since_progress_seconds = 0.5;  // it was half a second ago
          watch.Heard(beat, clock.At());
        }
      }
    }
    CHECK(watch.Limit("checkpointing") == Approx(30));
  }
  SECTION("launch.progress_seconds ends the job: a stall is told by half of it") {
    ProgressWatch bounded(14);
    CHECK(bounded.Limit("loading") == 7);
    ProgressWatch hasty(3);
    CHECK(hasty.Limit("loading") > 1e9);
  }
  SECTION("what was learnt outlives a restart") {
    watch.Begin(4, clock.At());
    CHECK(watch.Limit("training") == 10);
  }
  SECTION("time in which nobody was listened to counts for nothing") {
    watch.Heard({0, 21, "training"}, clock.At());
    clock.now += 1000;
    watch.Shift(std::chrono::seconds(1000));
    CHECK(watch.Stalled(clock.At(), [](int rank) { return rank == 0; }).empty());
  }
}

TEST_CASE("The laggard: fewest steps, then silent, then not waiting, then earliest in the plan") {
  Clock clock;
  ProgressWatch watch(0);
  watch.Begin(4, clock.At());
  auto tell = [&](int rank, int64_t step, uint32_t action, bool waits, double silent) {
    WorkerBeat beat{rank, step, "training", "action"};
    beat.action_index = action;
    beat.waits = waits;
    beat.silent_seconds = silent;
    watch.Heard(beat, clock.At());
  };
  SECTION("fewest steps") {
    for (int rank : {0, 1, 2, 3}) tell(rank, rank == 3 ? 6 : 7, 5, rank == 3, 0);
    CHECK(watch.Laggard(kAll) == 3);
  }
  SECTION("a process that is stopped") {
    for (int rank : {0, 1, 2, 3}) tell(rank, 7, 5, rank != 0, rank == 2 ? 8 : 0.5);
    CHECK(watch.Laggard(kAll) == 2);
  }
  SECTION("the only one that waits for nobody") {
    for (int rank : {0, 1, 2, 3}) tell(rank, 7, rank == 1 ? 9 : 5, rank != 1, 0.5);
    CHECK(watch.Laggard(kAll) == 1);
    CHECK(watch.Describe(1).find("waiting") == std::string::npos);
    CHECK(watch.Describe(0).find("waiting for its peers") != std::string::npos);
  }
  SECTION("all wait: the earliest in the plan") {
    for (int rank : {0, 1, 2, 3}) tell(rank, 7, rank == 3 ? 4 : 5, true, 0.5);
    CHECK(watch.Laggard(kAll) == 3);
  }
  SECTION("who has ended holds nobody up") {
    for (int rank : {0, 1, 2, 3}) tell(rank, rank == 0 ? 6 : 7, 5, rank != 2, 0.5);
    watch.Ended(0);
    CHECK(watch.Laggard(kAll) == 2);
    for (int rank : {1, 2, 3}) watch.Ended(rank);
    CHECK(watch.Laggard(kAll) == -1);
  }
}

TEST_CASE("A stalled rank is named once, with a question for its stacks; then it ends, or goes on") {
  Clock clock;
  MonitorSettings settings;
  settings.progress_seconds = 60;
  JobMonitor monitor(settings, {"a", "b"}, {{0}, {0}, {1}, {1}});
  JobMonitor::Actions actions;
  auto take = [&](JobMonitor::Actions more) { actions.insert(actions.end(), more.begin(), more.end()); };
  auto count = [&](const std::string& event) {
    return std::count_if(actions.begin(), actions.end(), [&](auto& a) { return a.event == event; });
  };
  auto asked = [&] {
    return std::count_if(actions.begin(), actions.end(),
                         [](auto& a) { return a.kind == MonitorAction::Kind::ask_stacks; });
  };
  take(monitor.Begin(clock.At()));
  auto second = [&](int64_t step, int hung) {
    clock.now += 1;
    for (int node : {0, 1}) take(monitor.AgentHeard(node, clock.At()));
    for (int rank = 0; rank < 4; ++rank) {
      WorkerBeat beat{rank, step, hung < 0 ? "training" : "checkpointing"};
      beat.waits = rank != hung;
      take(monitor.WorkerHeard(beat, clock.At()));
    }
    take(monitor.Tick(clock.At()));
  };
  for (int64_t step = 1; step <= 10; ++step) second(step, -1);
  // A rank other than 0 hangs in the first checkpoint: half of progress_seconds is the limit.
  for (int i = 0; i < 29; ++i) second(10, 2);
  CHECK(count("stalled") == 0);
  for (int i = 0; i < 10; ++i) second(10, 2);
  REQUIRE(count("stalled") == 1);
  CHECK(asked() == 1);
  const auto told = std::find_if(actions.begin(), actions.end(), [](auto& a) { return a.event == "stalled"; });
  CHECK(told->rank == 2);
  CHECK(told->host == "b");
  CHECK(told->text.find("state checkpointing") != std::string::npos);
  SECTION("it ends, and the same rank is named") {
    for (int i = 0; i < 30; ++i) second(10, 2);
    REQUIRE(count("no_progress") == 1);
    CHECK(asked() == 1);
    const auto ended = std::find_if(actions.begin(), actions.end(), [](auto& a) { return a.event == "no_progress"; });
    CHECK(ended->rank == 2);
  }
  SECTION("it goes on") {
    second(11, -1);
    CHECK(count("stall_over") == 1);
    for (int64_t step = 12; step < 100; ++step) second(step, -1);
    CHECK(count("stalled") == 1);
    CHECK(!monitor.stopping());
  }
}

}  // namespace ds
