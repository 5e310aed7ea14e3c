// Whatever happens to a rank, the others end within 10 s with the cause, and no GPU stays busy.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>
#include <sstream>
#include <thread>

#include "runtime/comm/nccl/wait.h"
#include "test/catch.h"
#include "test/unit/gpu_runtime/nccl_ranks.h"

namespace ds::test {
namespace {

using std::chrono::steady_clock;

constexpr auto kPromised = std::chrono::seconds(10);

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The GPU comes to rest: a kernel that hangs would keep this from returning.
std::string Rest() {
  Must(cudaDeviceSynchronize());
  return "at rest: ";
}

/// The message of the CommunicatorAborted that `call` throws, within the promised time.
template <class Call>
std::string Aborted(Call call) {
  const auto begin = steady_clock::now();
  try {
    call();
  } catch (const CommunicatorAborted& error) {
    if (steady_clock::now() - begin > kPromised) return "late";
    return Rest() + error.what();
  }
  return "not aborted";
}

}  // namespace

TEST_CASE("waiting for a stream ends at its deadline, and the communicators with it", "[time]") {
  const auto outcomes = RunThreads(1, [](int, const CommunicatorFactory& factory) {
    const auto comm = factory("gather");
    const RankMemory data(DType::f32, 4);
    // The host keeps the stream from going on.
    std::promise<void> release;
    cudaStream_t stream = static_cast<cudaStream_t>(comm->stream());
    const auto hold = [](void* promise) { static_cast<std::promise<void>*>(promise)->get_future().wait(); };
    Must(cudaLaunchHostFunc(stream, hold, &release));
    comm->AllGather(data, data);
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      release.set_value();
    });
    const std::string first = Aborted([&] { Finish(*comm, std::chrono::milliseconds(300)); });
    other.join();
    return first + " | " + Aborted([&] { comm->Barrier(); });
  });
  CAPTURE(outcomes[0].value, outcomes[0].error);
  CHECK(Has(outcomes[0].value,
            "at rest: stream 'gather', rank 0 of 1: all_gather of 4 f32: rank 0 aborted: the test did "
            "not end within 300 ms | "));
  CHECK(Has(outcomes[0].value, "| at rest: stream 'gather'"));
}

TEST_CASE("an error of the GPU's, or none, is what waiting for an event reports", "[time]") {
  cudaEvent_t event = nullptr;
  Must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  WaitForEvent(event, {}, std::chrono::seconds(1), "nothing");  // never recorded: done
  Must(cudaEventDestroy(event));
}

TEST_CASE("NCCL: abort from another thread ends a waiting rank, and tells its peers", "[time]") {
  if (!HasTwoGpus()) return;
  std::promise<void> waiting, done;
  const auto ended = done.get_future().share();
  const auto outcomes = RunThreads(2, [&](int rank, const CommunicatorFactory& factory) {
    const auto gather = factory("gather"), reduce = factory("reduce");
    const RankMemory shard(DType::f32, 3), whole(DType::f32, 6);
    if (rank == 1) {  // does not come, but stays
      ended.wait();
      return Aborted([&] {
        for (;;) gather->CheckAsync();
      });
    }
    std::thread other([&] {
      waiting.get_future().wait();
      reduce->Abort("told to stop");
    });
    gather->AllGather(shard, whole);
    waiting.set_value();
    std::string error = Aborted([&] { Finish(*gather); });
    error += " | " + Aborted([&] { reduce->Barrier(); });
    other.join();
    done.set_value();
    return error;
  });
  CAPTURE(outcomes[0].value, outcomes[0].error, outcomes[1].value, outcomes[1].error);
  CHECK(Has(outcomes[0].value,
            "at rest: stream 'gather', rank 0 of 2: all_gather of 3 f32: rank 0 aborted: told to stop | "));
  CHECK(Has(outcomes[0].value, "| at rest: stream 'reduce', rank 0 of 2: barrier: rank 0 aborted: told to stop"));
  CHECK(Has(outcomes[1].value, "at rest: stream 'gather', rank 1 of 2: between calls: rank 0 aborted: told to stop"));
}

TEST_CASE("NCCL: a rank that leaves fails those who need it", "[time]") {
  if (!HasTwoGpus()) return;
  const auto outcomes = RunThreads(2, [&](int rank, const CommunicatorFactory& factory) {
    const auto comm = factory("gather");
    const RankMemory shard(DType::f32, 3), whole(DType::f32, 6);
    comm->AllGather(shard, whole);
    Finish(*comm);
    if (rank == 1) return std::string("left");
    comm->AllGather(shard, whole);
    return Aborted([&] { Finish(*comm); });
  });
  CAPTURE(outcomes[0].value, outcomes[0].error);
  CHECK(Has(outcomes[0].value, "at rest: stream 'gather', rank 0 of 2: all_gather of 3 f32: rank 1 left the group"));
  CHECK(outcomes[1].value == "left");
}

TEST_CASE("NCCL: a peer that never joins is named when the time is up", "[time]") {
  MemoryStore store;
  NcclOptions options;
  options.size = 2;
  options.timeout = std::chrono::milliseconds(300);
  const RankOutcome alone = RunBody(
      0, [](int, const CommunicatorFactory& factory) { return std::to_string(factory("gather")->size()); }, options,
      store);
  CAPTURE(alone.error);
  CHECK(alone.aborted);
  CHECK(Has(alone.error, "rank 0 of 2: connect: rank 1"));
}

TEST_CASE("NCCL: a peer that makes one communicator and not the next is named when the time is up", "[time]") {
  if (!HasTwoGpus()) return;
  for (const int absent : {0, 1}) {
    CAPTURE(absent);
    std::promise<void> done;
    const auto ended = done.get_future().share();
    const auto outcomes = RunThreads(
        2,
        [&](int rank, const CommunicatorFactory& factory) {
          const auto first = factory("first");
          if (rank == absent) {
            ended.wait();
            return std::string("stayed");
          }
          const std::string error = Aborted([&] { factory("second"); });
          done.set_value();
          return error;
        },
        std::chrono::seconds(5));
    const std::string& error = outcomes[1 - absent].value;
    CAPTURE(error, outcomes[0].error, outcomes[1].error);
    CHECK(Has(error, "stream 'second', rank " + std::to_string(1 - absent) + " of 2: connect: rank " +
                         std::to_string(absent) + " did not come within 5000 ms"));
    CHECK(outcomes[absent].value == "stayed");
  }
}

// ---- processes

namespace {

/// What a process of the tests below does; the environment says.
std::string PeerBody(int rank, const CommunicatorFactory& factory, const std::string& mode, Store& store) {
  const auto comm = factory("gather");
  const int64_t n = mode == "loop" ? 1 << 20 : 3;
  const RankMemory shard(DType::f32, n), whole(DType::f32, 2 * n), spoiled(DType::u8, 1 << 20);
  const auto gather = [&] { comm->AllGather(shard, whole); };
  gather();
  Finish(*comm);
  if (mode == "once") return Rest() + "fine";
  if (mode != "loop" && rank == 1) {  // never comes again
    store.Set("running/1", "");
    pause();
  }
  return Aborted([&] {
    if (mode == "flood") {  // until no more calls fit into the stream
      store.Set("running/0", "");
      for (;;) gather();
    }
    gather();
    store.Set("running/" + std::to_string(rank), "");
    if (mode == "blocked") {  // until CUDA takes no more of another stream, which waits for this one
      cudaStream_t compute = nullptr;
      cudaEvent_t gathered = nullptr, computed = nullptr;
      Must(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
      Must(cudaEventCreateWithFlags(&gathered, cudaEventDisableTiming));
      Must(cudaEventCreateWithFlags(&computed, cudaEventDisableTiming));
      Must(cudaEventRecord(gathered, static_cast<cudaStream_t>(comm->stream())));
      Must(cudaStreamWaitEvent(compute, gathered, 0));
      for (int i = 0; i < 20'000; ++i) Must(cudaMemsetAsync(spoiled.tensor().data, i, 1 << 20, compute));
      Must(cudaEventRecord(computed, compute));
      Communicator* const communicators[] = {comm.get()};
      WaitForEvent(computed, communicators, std::chrono::minutes(1), "step 1");
    }
    if (mode == "absent") Finish(*comm);
    for (;;) {
      gather();
      Finish(*comm);
    }
  });
}

/// Two processes of this program in a mode of PeerBody, each a rank.
class Peers {
 public:
  explicit Peers(const std::string& mode)
      : folder_(std::filesystem::temp_directory_path() / ("ds-nccl-test-" + std::to_string(getpid()) + "-" + mode)),
        store_(folder_) {
    std::filesystem::create_directory(folder_);
    for (int rank : {0, 1}) {
      setenv("DS_TEST_PEER", (std::to_string(rank) + " " + mode + " " + folder_.string()).c_str(), 1);
      char program[] = "/proc/self/exe", name[] = "NCCL: a process of another test";
      char* const arguments[] = {program, name, nullptr};
      if (posix_spawn(&processes_[rank], program, nullptr, nullptr, arguments, environ) != 0)
        throw std::runtime_error("posix_spawn");
    }
    unsetenv("DS_TEST_PEER");
  }
  ~Peers() {
    for (const pid_t process : processes_) {
      if (process <= 0) continue;
      kill(process, SIGKILL);
      waitpid(process, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  void AwaitRunning(int rank) { store_.Get("running/" + std::to_string(rank), std::chrono::minutes(1)); }
  void Kill(int rank) { kill(processes_[rank], SIGKILL); }
  /// What the rank's body returned; empty: it did not end in time. Waits for the end of the process.
  std::string Outcome(int rank, std::chrono::milliseconds timeout) {
    try {
      const std::string outcome = store_.Get("outcome/" + std::to_string(rank), timeout);
      waitpid(processes_[rank], nullptr, 0);
      processes_[rank] = 0;
      return outcome;
    } catch (const RuntimeError&) {
      return "";
    }
  }

 private:
  const std::filesystem::path folder_;
  FolderStore store_;
  pid_t processes_[2] = {};
};

}  // namespace

TEST_CASE("NCCL: a process of another test", "[.][time]") {
  std::istringstream text(getenv("DS_TEST_PEER") ? getenv("DS_TEST_PEER") : "");
  std::string mode, folder;
  NcclOptions options;
  REQUIRE(static_cast<bool>(text >> options.rank >> mode >> folder));
  options.size = 2;
  options.device = options.rank;
  FolderStore store(folder);
  const RankOutcome outcome = RunBody(
      options.rank, [&](int rank, const CommunicatorFactory& factory) { return PeerBody(rank, factory, mode, store); },
      options, store);
  store.Set("outcome/" + std::to_string(options.rank), outcome.error + outcome.value);
}

TEST_CASE("NCCL: a killed process ends the calls of the others within 10 s, and leaves their GPUs at rest", "[time]") {
  if (!HasTwoGpus()) return;
  // In the middle of a transfer; waiting for a rank that does not come; with a stream, or all of CUDA, full behind it.
  for (const std::string mode : {"loop", "absent", "flood", "blocked"}) {
    CAPTURE(mode);
    Peers peers(mode);
    for (int rank : {0, 1}) peers.AwaitRunning(rank);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // for the flood to fill what it fills
    const auto begin = steady_clock::now();
    peers.Kill(1);
    const std::string outcome = peers.Outcome(0, 2 * kPromised);
    CAPTURE(outcome);
    CHECK(steady_clock::now() - begin < kPromised);
    CHECK(Has(outcome, "at rest: stream 'gather', rank 0 of 2: all_gather of "));
    CHECK(Has(outcome, "the connection to rank 1 was lost"));
  }
  Peers after("once");
  for (int rank : {0, 1}) CHECK(after.Outcome(rank, std::chrono::minutes(1)) == "at rest: fine");
}

}  // namespace ds::test
