// An observer of a group learns what befalls it, without a call in progress: what ends waits outside of Gloo.
#include "runtime/comm/gloo_group.h"

#include <future>
#include <thread>

#include "test/catch.h"

namespace ds::test {
namespace {

struct Seen {
  std::promise<std::string> failed;
  std::promise<int> left;

  GlooGroup::Observer Observer() {
    return {[this](const std::string& reason) { failed.set_value(reason); },
            [this](int peer) { left.set_value(peer); }};
  }
};

/// A group of two ranks of this process.
struct Pair {
  Pair() {
    std::thread other([&] { Make(1); });
    Make(0);
    other.join();
  }
  void Make(int rank) {
    groups[rank] = std::make_unique<GlooGroup>("watch", rank, 2, GlooDevice("127.0.0.1"), store, "watch/",
                                               std::chrono::minutes(1), seen[rank].Observer());
  }

  MemoryStore store;
  Seen seen[2];
  std::unique_ptr<GlooGroup> groups[2];
};

template <class T>
T Soon(std::promise<T>& promise) {
  auto future = promise.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  return future.get();
}

}  // namespace

TEST_CASE("a failure is told to the observers of all ranks") {
  Pair pair;
  pair.groups[0]->Fail("rank 0 aborted: disk full");
  CHECK(Soon(pair.seen[0].failed) == "rank 0 aborted: disk full");
  CHECK(Soon(pair.seen[1].failed) == "rank 0 aborted: disk full");
}

TEST_CASE("a rank that leaves is told to the observers of the others, and is no failure") {
  Pair pair;
  pair.groups[1].reset();
  CHECK(Soon(pair.seen[0].left) == 1);
  pair.groups[0].reset();
  for (Seen& seen : pair.seen)
    CHECK(seen.failed.get_future().wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

}  // namespace ds::test
