// Promise: every schedule runs each pass once, in the order of micro-batches, without deadlock, and idles and keeps
// what its paper says.
#include "runtime/plan/schedule.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "test/catch.h"

namespace ds {
namespace {

const std::vector<std::pair<ScheduleKind, int>> kSchedules = {
    {ScheduleKind::gpipe, 1},       {ScheduleKind::one_f_one_b, 1}, {ScheduleKind::zb_h1, 1},
    {ScheduleKind::zb_v, 2},        {ScheduleKind::interleaved, 1}, {ScheduleKind::interleaved, 2},
    {ScheduleKind::interleaved, 3}, {ScheduleKind::interleaved, 4}};

/// Forward, gradient of the input and gradient of the weights take as long as each other.
SimulatedSchedule Run(const ScheduleShape& shape, double message = 0) {
  return Simulate(shape, OrderWork(shape), std::vector<WorkCost>(static_cast<size_t>(shape.chunks())), message);
}

template <class F>
void ForEach(F f) {
  for (int stages : {1, 2, 3, 4, 5, 8, 16})
    for (int micro_batches : {1, 2, 3, 4, 7, 8, 16, 17, 32, 33})
      for (const auto& [kind, chunks] : kSchedules) f(ScheduleShape{kind, stages, chunks, micro_batches});
}

double MostLive(const SimulatedSchedule& run) {
  double most = 0;
  for (const auto& stage : run.stages) most = std::max(most, stage.peak_live);
  return most;
}

TEST_CASE("every pass of a chunk is there once for each micro-batch, in their order, on the chunk's stage") {
  ForEach([](const ScheduleShape& shape) {
    CAPTURE(static_cast<int>(shape.kind), shape.stages, shape.virtual_stages, shape.micro_batches);
    const auto work = OrderWork(shape);
    REQUIRE(work.size() == static_cast<size_t>(shape.stages));
    std::map<std::pair<int, int>, int> next;  // of a chunk's forwards, gradients of inputs, and of weights
    for (int stage = 0; stage < shape.stages; ++stage) {
      for (const Work& w : work[static_cast<size_t>(stage)]) {
        REQUIRE(shape.StageOf(w.chunk) == stage);
        if (w.kind == WorkKind::forward) REQUIRE(next[{w.chunk, 0}]++ == w.micro_batch);
        if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_input)
          REQUIRE(next[{w.chunk, 1}]++ == w.micro_batch);
        if (w.kind == WorkKind::backward || w.kind == WorkKind::backward_weight)
          REQUIRE(next[{w.chunk, 2}]++ == w.micro_batch);
      }
    }
    REQUIRE(next.size() == static_cast<size_t>(3 * shape.chunks()));
    for (const auto& [pass, count] : next) REQUIRE(count == shape.micro_batches);
  });
}

TEST_CASE("no schedule deadlocks, with or without backward, and each keeps at most what is in flight") {
  ForEach([](ScheduleShape shape) {
    CAPTURE(static_cast<int>(shape.kind), shape.stages, shape.virtual_stages, shape.micro_batches);
    const SimulatedSchedule run = Run(shape, 0.5);
    REQUIRE(run.stuck == "");
    REQUIRE(MostLive(run) <= shape.micro_batches);
    shape.training = false;
    REQUIRE(Run(shape).stuck == "");
  });
}

TEST_CASE("a schedule that waits for itself is told, with where its stages stand") {
  const ScheduleShape shape{ScheduleKind::one_f_one_b, 2, 1, 2};
  auto work = OrderWork(shape);
  std::swap(work[1][0], work[1][1]);  // its first backward before its first forward
  const SimulatedSchedule run = Simulate(shape, work, std::vector<WorkCost>(2));
  CHECK(run.stuck == "stage 0 waits at B0.0, stage 1 waits at B1.0");
}

TEST_CASE("gpipe and 1f1b idle (p - 1) / (m + p - 1), interleaved as much less as it has chunks") {
  for (int p : {1, 2, 3, 4, 8, 16}) {
    for (int m : {1, 2, 3, 8, 32, 33}) {
      CAPTURE(p, m);
      const double share = (p - 1.0) / (m + p - 1.0);
      CHECK(Run({ScheduleKind::gpipe, p, 1, m}).IdleShare() == Approx(share).margin(1e-12));
      CHECK(Run({ScheduleKind::one_f_one_b, p, 1, m}).IdleShare() == Approx(share).margin(1e-12));
    }
    for (int v : {1, 2, 3, 4}) {
      for (int groups : {1, 2, 5}) {
        CAPTURE(p, v, groups);
        const double bubble = (p - 1.0) / v, work = groups * p;  // in micro-batches
        CHECK(Run({ScheduleKind::interleaved, p, v, groups * p}).IdleShare() ==
              Approx(bubble / (work + bubble)).margin(1e-12));
      }
    }
  }
}

TEST_CASE("zb-h1 idles a third of 1f1b's bubble and keeps no more") {
  for (int p : {2, 3, 4, 8, 16}) {
    for (int m : {p, 2 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const SimulatedSchedule plain = Run({ScheduleKind::one_f_one_b, p, 1, m});
      const SimulatedSchedule zero = Run({ScheduleKind::zb_h1, p, 1, m});
      CHECK(plain.seconds - 3 * m == Approx(3 * (p - 1)));
      CHECK(zero.seconds - 3 * m == Approx(p - 1));
      CHECK(MostLive(zero) <= MostLive(plain));
    }
  }
}

TEST_CASE("zb-v has no bubble between start and end from 2p micro-batches on, with 1f1b's memory") {
  for (int p : {2, 3, 4, 8, 16}) {
    for (int m : {2 * p, 3 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const SimulatedSchedule run = Run({ScheduleKind::zb_v, p, 2, m});
      for (const auto& stage : run.stages) CHECK(stage.idle() / (stage.end - stage.begin) < 0.02);
      CHECK(run.seconds - 6 * m == Approx(p - 1));  // the skew; chunks are halves of stages
      CHECK(MostLive(run) <= MostLive(Run({ScheduleKind::one_f_one_b, p, 1, m})));
    }
  }
}

TEST_CASE(
    "memory in flight: gpipe's is every micro-batch, 1f1b's falls with the stage, interleaved's is a little more") {
  const SimulatedSchedule gpipe = Run({ScheduleKind::gpipe, 4, 1, 16});
  for (const auto& stage : gpipe.stages) CHECK(stage.peak_live == 16);
  const SimulatedSchedule plain = Run({ScheduleKind::one_f_one_b, 4, 1, 16});
  for (int s = 0; s < 4; ++s) CHECK(plain.stages[static_cast<size_t>(s)].peak_live == 4 - s);
  CHECK(MostLive(Run({ScheduleKind::interleaved, 4, 2, 16})) == Approx(4 * (1 + 3.0 / 8)));
}

TEST_CASE("micro-batches that do not fill interleaved's last group still run") {
  for (int p : {2, 3, 4, 8})
    for (int v : {2, 4})
      for (int m = 1; m <= 3 * p + 1; ++m) {
        CAPTURE(p, v, m);
        CHECK(Run({ScheduleKind::interleaved, p, v, m}).stuck == "");
      }
}

TEST_CASE("the order of events is one that every stage and every message fits into") {
  ForEach([](const ScheduleShape& shape) {
    CAPTURE(static_cast<int>(shape.kind), shape.stages, shape.virtual_stages, shape.micro_batches);
    const auto work = OrderWork(shape);
    const SimulatedSchedule run = Run(shape);
    std::map<std::tuple<int, int, bool>, size_t> at;  // chunk, micro-batch, backward
    std::vector<size_t> next(work.size(), 0);
    for (size_t e = 0; e < run.events.size(); ++e) {
      const auto& event = run.events[e];
      REQUIRE(next[static_cast<size_t>(event.stage)]++ == event.index);
      const Work& w = work[static_cast<size_t>(event.stage)][event.index];
      if (w.kind == WorkKind::backward_weight) continue;
      const bool backward = w.kind != WorkKind::forward;
      at[{w.chunk, w.micro_batch, backward}] = e;
      const int from = backward ? w.chunk + 1 : w.chunk - 1;
      if (from >= 0 && from < shape.chunks()) REQUIRE(at.count({from, w.micro_batch, backward}) == 1);
    }
  });
}

TEST_CASE("shapes that are none are refused") {
  for (const ScheduleShape& shape :
       {ScheduleShape{ScheduleKind::gpipe, 0, 1, 1}, ScheduleShape{ScheduleKind::gpipe, 2, 2, 1},
        ScheduleShape{ScheduleKind::zb_v, 2, 1, 1}, ScheduleShape{ScheduleKind::interleaved, 2, 0, 1},
        ScheduleShape{ScheduleKind::one_f_one_b, 2, 1, 0}})
    CHECK_THROWS_AS(OrderWork(shape), std::invalid_argument);
}

}  // namespace
}  // namespace ds
