// What the other ranks see when one does something else, gives up, leaves, dies or stays away.
#include <atomic>
#include <csignal>
#include <future>
#include <thread>

#include "test/catch.h"
#include "test/unit/comm/world.h"

namespace ds::test {
namespace {

constexpr Backend kAll[] = {Backend::threads, Backend::gloo_threads, Backend::gloo_processes};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Tensor View(std::vector<float>& v) { return Tensor::Of(v.data(), Shape{static_cast<int64_t>(v.size())}); }

void Gather(Communicator& comm, int64_t n) {
  std::vector<float> shard(n, 1.0f), whole(n * comm.size());
  comm.AllGather(View(shard), View(whole));
}

/// All ranks end with an error, not a hang, that holds `parts`; CommunicatorAborted or not as asked.
void CheckAllFail(const std::vector<Outcome>& outcomes, bool aborted, const std::vector<std::string>& parts) {
  for (size_t r = 0; r < outcomes.size(); ++r) {
    CAPTURE(r, outcomes[r].error);
    CHECK(outcomes[r].aborted == aborted);
    for (const std::string& part : parts) {
      CAPTURE(part);
      CHECK(Has(outcomes[r].error, part));
    }
  }
}

}  // namespace

TEST_CASE("ranks that ask for different things are told so, all of them") {
  for (const Backend backend : kAll) {
    INFO(NameOf(backend));
    CheckAllFail(RunRanks(backend, 3,
                          [](int rank, const CommunicatorFactory& factory) {
                            const auto comm = factory("gather");
                            comm->Barrier();
                            rank == 1 ? comm->Barrier() : Gather(*comm, 3);
                            return std::string();
                          }),
                 false, {"stream 'gather'", "the ranks' operations differ", "barrier", "all_gather of 3 f32"});
    CheckAllFail(RunRanks(backend, 3,
                          [](int rank, const CommunicatorFactory& factory) {
                            Gather(*factory("gather"), rank == 2 ? 5 : 4);
                            return std::string();
                          }),
                 false, {"all_gather of 4 f32", "all_gather of 5 f32"});
    CheckAllFail(RunRanks(backend, 2,
                          [](int rank, const CommunicatorFactory& factory) {
                            std::vector<float> data(4);
                            std::vector<double> wide(4);
                            const auto comm = factory("x");
                            rank == 0 ? comm->Broadcast(View(data), 0)
                                      : comm->Broadcast(Tensor::Of(wide.data(), Shape{4}), 0);
                            return std::string();
                          }),
                 false, {"broadcast of 4 f32", "broadcast of 4 f64"});
  }
}

TEST_CASE("a send that no receive can meet is a mismatch") {
  for (const Backend backend : kAll) {
    INFO(NameOf(backend));
    CheckAllFail(RunRanks(backend, 2,
                          [](int rank, const CommunicatorFactory& factory) {
                            std::vector<float> data(rank == 0 ? 8 : 6);
                            const auto comm = factory("p2p");
                            rank == 0 ? comm->Send(View(data), 1) : comm->Receive(View(data), 0);
                            return std::string();
                          }),
                 false, {"send of 8 f32 to rank 1", "receive of 6 f32 from rank 0"});
    CheckAllFail(RunRanks(backend, 2,
                          [](int rank, const CommunicatorFactory& factory) {
                            std::vector<float> data(8);
                            const auto comm = factory("p2p");
                            rank == 0 ? comm->Send(View(data), 1) : comm->Barrier();
                            return std::string();
                          }),
                 false, {"send of 8 f32 to rank 1", "barrier"});
    CheckAllFail(RunRanks(backend, 2,
                          [](int rank, const CommunicatorFactory& factory) {
                            std::vector<float> data(8);
                            factory("p2p")->Send(View(data), 1 - rank);
                            return std::string();
                          }),
                 false, {"send of 8 f32 to rank 1", "send of 8 f32 to rank 0"});
  }
}

TEST_CASE("abort ends the calls of all ranks, with its reason") {
  for (const Backend backend : kAll) {
    INFO(NameOf(backend));
    const auto outcomes = RunRanks(backend, 4, [](int rank, const CommunicatorFactory& factory) {
      const auto comm = factory("reduce");
      Gather(*comm, 2);
      if (rank == 2) {
        comm->Abort("the loss is not a number");
        comm->Abort("a second reason is not heard");
      }
      Gather(*comm, 2);
      return std::string();
    });
    CheckAllFail(outcomes, true, {"stream 'reduce'", "all_gather of 2 f32", "the loss is not a number"});
  }
}

TEST_CASE("abort from another thread ends a call in progress here") {
  for (const Backend backend : {Backend::threads, Backend::gloo_threads}) {
    INFO(NameOf(backend));
    std::promise<void> done;
    const auto ended = done.get_future().share();
    const auto outcomes = RunRanks(backend, 2, [&](int rank, const CommunicatorFactory& factory) {
      const auto comm = factory("control");
      if (rank == 1) {  // never comes, but stays
        ended.wait();
        return std::string("stayed");
      }
      std::thread other([&] { comm->Abort("told to stop"); });
      std::string error;
      try {
        comm->Barrier();
      } catch (const CommunicatorAborted& aborted) {
        error = aborted.what();
      }
      other.join();
      done.set_value();
      return error;
    });
    CHECK(Has(outcomes[0].value, "told to stop"));
    CHECK(outcomes[1].value == "stayed");
  }
}

TEST_CASE("abort reaches a rank that waits for another") {
  // Rank 0 waits for rank 1, which is in no call; rank 2 aborts.
  for (const Backend backend : {Backend::threads, Backend::gloo_threads}) {
    INFO(NameOf(backend));
    std::promise<void> begun, done;
    const auto receiving = begun.get_future().share(), ended = done.get_future().share();
    const auto outcomes = RunRanks(backend, 3, [&](int rank, const CommunicatorFactory& factory) {
      const auto comm = factory("p2p");
      std::vector<float> data(4);
      if (rank == 1) ended.wait();
      if (rank == 2) {
        receiving.wait();
        comm->Abort("disk full");
      }
      if (rank != 0) return std::string();
      begun.set_value();
      try {
        comm->Receive(View(data), 1);
      } catch (const CommunicatorAborted& aborted) {
        done.set_value();
        return std::string(aborted.what());
      }
      return std::string("received from nobody");
    });
    CHECK(Has(outcomes[0].value, "receive of 4 f32 from rank 1"));
    CHECK(Has(outcomes[0].value, "disk full"));
  }
}

TEST_CASE("a rank that leaves fails those who need it, and only those") {
  for (const Backend backend : kAll) {
    INFO(NameOf(backend));
    const auto outcomes = RunRanks(backend, 3, [](int rank, const CommunicatorFactory& factory) {
      auto comm = factory("p2p");
      comm->Barrier();
      if (rank == 2) return std::string("left");
      std::vector<float> data(1000, static_cast<float>(rank));
      for (int i = 0; i < 20; ++i) rank == 0 ? comm->Send(View(data), 1) : comm->Receive(View(data), 0);
      rank == 0 ? comm->Receive(View(data), 1) : comm->Send(View(data), 0);  // or rank 0 may fail 1 while it receives
      try {
        Gather(*comm, 1);
      } catch (const CommunicatorAborted& aborted) {
        return std::string(aborted.what());
      }
      return std::string("gathered from nobody");
    });
    for (int r : {0, 1}) {
      CAPTURE(r, outcomes[r].value, outcomes[r].error);
      CHECK(Has(outcomes[r].value, "all_gather of 1 f32"));
    }
    // The first to miss rank 2 names it; the other may hear it from the first.
    CHECK(Has(outcomes[0].value + outcomes[1].value, "rank 2 left the group"));
  }
}

TEST_CASE("a killed process ends the calls of the others at once, even in the middle of a message") {
  // The time-out is a minute: what ends these calls is the broken connection.
  for (const int64_t n : {int64_t{1}, int64_t{4} << 20}) {
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = RunRanks(Backend::gloo_processes, 4, [n](int rank, const CommunicatorFactory& factory) {
      const auto comm = factory("gather");
      std::vector<float> shard(n, 1.0f), whole(n * comm->size(), 0.0f);
      comm->Barrier();
      if (rank == 1) {
        std::thread([&] {  // dies when rank 0's piece begins to arrive
          while (std::atomic_ref<float>(whole[0]).load() == 0.0f) std::this_thread::yield();
          raise(SIGKILL);
        })
            .detach();
      }
      for (;;) comm->AllGather(View(shard), View(whole));
      return std::string();
    });
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    CHECK(outcomes[1].signal == SIGKILL);
    for (int r : {0, 2, 3}) {
      CAPTURE(r, outcomes[r].error);
      CHECK(outcomes[r].aborted);
      CHECK(Has(outcomes[r].error, "stream 'gather'"));
      CHECK(Has(outcomes[r].error, "the connection to rank 1 was lost"));
      CHECK(outcomes[r].signal == 0);
    }
  }
}

TEST_CASE("a rank that stays away is named when the time is up") {
  for (const Backend backend : {Backend::threads, Backend::gloo_threads}) {
    INFO(NameOf(backend));
    std::promise<void> done;
    const auto ended = done.get_future().share();
    const auto outcomes = RunRanks(
        backend, 2,
        [&](int rank, const CommunicatorFactory& factory) {
          const auto comm = factory("control");
          if (rank == 1) {
            ended.wait();
            return std::string("late");
          }
          std::string error;
          try {
            comm->Barrier();
          } catch (const CommunicatorAborted& aborted) {
            error = aborted.what();
          }
          done.set_value();
          return error;
        },
        std::chrono::milliseconds(300));
    CHECK(Has(outcomes[0].value, "barrier: rank 1 did not come within 300 ms"));
    CHECK(outcomes[1].value == "late");
  }
  MemoryStore store;
  REQUIRE_THROWS_AS(store.Get("absent", std::chrono::milliseconds(1)), RuntimeError);
  const auto alone = GlooFactory({.rank = 0, .size = 2, .timeout = std::chrono::milliseconds(100)}, store);
  REQUIRE_THROWS_AS(alone("x"), CommunicatorAborted);
}

TEST_CASE("an aborted world aborts the communicators that it makes later") {
  ThreadWorld world(2);
  world.Abort("over");
  REQUIRE_THROWS_AS(world.Make(0, "x")->Barrier(), CommunicatorAborted);
  REQUIRE_THROWS_AS(world.Make(2, "x"), std::invalid_argument);
}

}  // namespace ds::test
