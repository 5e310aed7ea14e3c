// Promise: collectives are measured between real processes; a rank that fails is named; none outlives ds-bench.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/bench/collectives.h"
#include "test/catch.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using namespace std::chrono_literals;

RankGroup::Options Ranks(int size) {
  RankGroup::Options options;
  options.program = std::string(DS_BIN_DIR) + "/ds-bench";
  options.size = size;
  return options;
}

/// True once `holds` does, within a generous time.
template <class Condition>
bool Soon(Condition holds) {
  for (const auto end = std::chrono::steady_clock::now() + 20s; std::chrono::steady_clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return holds();
}

bool Alive(const ProcessId& id) { return IdentifyProcess(id.pid) == id; }

}  // namespace

TEST_CASE("collectives of two and three processes are timed, each over several sizes") {
  for (const int size : {2, 3}) {
    RankGroup group(Ranks(size));
    const CollectiveSummary summary =
        MeasureCollectives(group, false, 1 << 20, Budget(20), [](const CollectiveResult&) {});
    group.Finish();
    CHECK(Descendants().empty());
    REQUIRE(summary.results.size() == 12);
    for (const CollectiveResult& result : summary.results) {
      CHECK(result.ranks == size);
      CHECK(result.seconds > 1e-7);
      CHECK(result.bytes % (4 * size) == 0);
      CHECK(result.bytes <= 1 << 20);
    }
    CHECK(summary.communicator_bytes == 0);
    const std::vector<CollectiveRate> rates = CollectiveRatesOf(summary.results);
    REQUIRE(rates.size() == 3);
    for (const CollectiveRate& rate : rates) {
      CHECK(rate.ranks == size);
      CHECK(rate.points.size() == 3);
      CHECK(rate.rate.bytes_per_second > 0);
    }
  }
}

TEST_CASE("bandwidths are those of nccl-tests") {
  CHECK(BusFactor(BenchCollective::all_gather, 8) == 7.0 / 8);
  CHECK(BusFactor(BenchCollective::reduce_scatter, 2) == 0.5);
  CHECK(BusFactor(BenchCollective::all_reduce, 4) == 1.5);
  CHECK(BusFactor(BenchCollective::send_receive, 4) == 1);
  const CollectiveResult result{BenchCollective::all_reduce, 4, 1'000'000, 1e-3};
  CHECK(result.AlgorithmBandwidth() == Approx(1e9));
  CHECK(result.BusBandwidth() == Approx(1.5e9));
  CHECK(result.SentBytes() == Approx(1.5e6));
}

TEST_CASE("rates are fitted to what a rank sends") {
  std::vector<CollectiveResult> results;
  for (const int64_t bytes : {1 << 12, 1 << 20, 1 << 28})  // each rank sends half, at 2 GB/s after 30 us
    results.push_back({BenchCollective::all_gather, 2, bytes, 30e-6 + static_cast<double>(bytes) / 2 / 2e9});
  results.push_back({BenchCollective::send_receive, 2, 1 << 20, 1e-3});
  const std::vector<CollectiveRate> rates = CollectiveRatesOf(results);
  REQUIRE(rates.size() == 1);
  CHECK(rates[0].kind == CollectiveKind::all_gather);
  CHECK(rates[0].rate.latency_seconds == Approx(30e-6).epsilon(1e-6));
  CHECK(rates[0].rate.bytes_per_second == Approx(2e9).epsilon(1e-6));
  CHECK(rates[0].points[1] == std::pair<int64_t, double>(1 << 20, results[1].seconds));
}

TEST_CASE("a rank that dies, refuses or hangs is named with the reason, and all are ended") {
  SECTION("dies") {
    RankGroup group(Ranks(2));
    group.Ask({"connect", "compute"}, 30s);
    const std::vector<ProcessId> ranks = Descendants();
    REQUIRE(ranks.size() == 2);
    std::thread killer([pid = std::max(ranks[0].pid, ranks[1].pid)] {
      std::this_thread::sleep_for(200ms);
      ::kill(pid, SIGKILL);
    });
    const std::string message = MessageOf<RuntimeError>([&] {
      for (;;) group.Ask({"time", "all_gather", "1048576", "20"}, 30s);
    });
    killer.join();
    CHECK(Contains(message, "killed by signal 9"));
    CHECK(Contains(message, " of 2"));
    CHECK(Descendants().empty());
  }
  SECTION("refuses") {
    RankGroup group(Ranks(2));
    CHECK(Contains(MessageOf<RuntimeError>([&] {
                     group.Ask({"time", "all_gather", "8", "1"}, 30s);
                   }),
                   " of 2: no communicator"));
    CHECK(Descendants().empty());
  }
  SECTION("asks for what is none") {
    RankGroup group(Ranks(2));
    group.Ask({"connect", "compute"}, 30s);
    CHECK(Contains(MessageOf<RuntimeError>([&] {
                     group.Ask({"time", "all_gather", "12", "1"}, 30s);
                   }),
                   "impossible size"));
  }
  SECTION("hangs") {
    RankGroup group(Ranks(2));
    for (const ProcessId& rank : Descendants()) ::kill(rank.pid, SIGSTOP);
    CHECK(Contains(MessageOf<RuntimeError>([&] {
                     group.Ask({"connect", "compute"}, 300ms);
                   }),
                   "no answer within 300 ms"));
    CHECK(Descendants().empty());
  }
}

TEST_CASE("ranks that are left are ended with their group") {
  {
    RankGroup group(Ranks(3));
    CHECK(Descendants().size() == 3);
  }
  CHECK(Descendants().empty());
}

TEST_CASE("ranks die with a ds-bench that is killed") {
  const test::TempFolder folder;
  SpawnOptions options;
  options.argv = {
      std::string(DS_BIN_DIR) + "/ds-bench", "collectives", "--device", "cpu", "--ranks", "3", "--seconds", "60"};
  options.environment = InheritedEnvironment();
  options.working_directory = folder.path();
  const pid_t pid = Spawn(options);
  std::vector<ProcessId> processes;
  CHECK(Soon([&] { return (processes = Descendants()).size() == 4; }));
  std::this_thread::sleep_for(300ms);  // while they are at work
  ::kill(pid, SIGKILL);
  int status = 0;
  CHECK(::waitpid(pid, &status, 0) == pid);
  for (const ProcessId& process : processes) CHECK(Soon([&] { return !Alive(process); }));
}

}  // namespace ds
