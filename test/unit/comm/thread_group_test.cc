// Promise: a meeting whose preparation fails ends the call of every rank, rather than leave them waiting.
#include "runtime/comm/thread_group.h"

#include <thread>

#include "runtime/comm/communicator.h"
#include "test/catch.h"

namespace ds::test {

TEST_CASE("a preparation that throws is the last rank's error and breaks the group for the others") {
  constexpr int kRanks = 3;
  ThreadGroup group("stream", kRanks, std::chrono::minutes(5));
  std::vector<std::string> thrown(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto meet = [&](int64_t number) {
        group.Meet(
            rank, number, {{Collective::split}, {}, {}},
            [](ThreadGroup::Meeting&) { throw RuntimeError("no memory for groups"); }, [](ThreadGroup::Meeting&) {});
      };
      try {
        meet(1);
      } catch (const CommunicatorAborted& error) {
        thrown[rank] = std::string("victim: ") + error.what();
      } catch (const RuntimeError& error) {
        thrown[rank] = std::string("cause: ") + error.what();
      }
      try {
        meet(2);
        thrown[rank] = "a broken group went on";
      } catch (const CommunicatorAborted&) {
      }
    });
  for (std::thread& thread : threads) thread.join();
  int causes = 0;
  for (const std::string& message : thrown) {
    CAPTURE(message);
    CHECK(message.find("no memory for groups") != std::string::npos);
    if (message.starts_with("cause: "))
      ++causes;
    else
      CHECK(message.find("could not prepare split") != std::string::npos);
  }
  CHECK(causes == 1);
}

}  // namespace ds::test
