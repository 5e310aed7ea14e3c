#include "runtime/bench/collective_rank.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "kernels/gpu.h"
#include "runtime/base/error.h"
#include "runtime/bench/library_memory.h"
#include "runtime/bench/rank_link.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/state/memory.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLink = 0;  // standard input
/// Longest time to connect, and for one call. ds-bench ends its ranks long before.
constexpr std::chrono::milliseconds kTimeout{120'000};

template <class T>
T Number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw RuntimeError("not a number: '" + text + "'");
  return value;
}

std::string Text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

class BenchRank {
 public:
  /// gpu: -1 on the CPU.
  BenchRank(int rank, int size, int gpu, int threads)
      : rank_(rank), size_(size), on_gpu_(gpu >= 0), gpu_index_(gpu), threads_(threads), store_(kLink) {}

  RankMessage Do(const RankMessage& command) {
    const std::string& what = command.front();
    if (what == "connect" && command.size() == 2) return Connect(command[1]);
    if (what == "time" && command.size() == 4)
      return {"done", Text(Time(command[1], Number<int64_t>(command[2]), Number<int>(command[3])))};
    if (what == "libraries") return Libraries();
    throw RuntimeError("unknown command '" + what + "'");
  }

 private:
  int64_t Used() const {
    if (!gpu_) return 0;
    const Gpu::MemoryInfo memory = gpu_->Memory();
    return memory.total - memory.free;
  }

  void Open() {
    if (!on_gpu_ || gpu_) return;
    gpu_ = OpenGpu(gpu_index_);
    begin_ = GpuEvent(*gpu_, true), end_ = GpuEvent(*gpu_, true);
  }

  RankMessage Connect(const std::string& stream) {
    Open();
    if (!factory_ && on_gpu_) {
      if (!NcclFactory) throw RuntimeError("this program was built without NCCL");
      NcclOptions options;
      options.rank = rank_, options.size = size_, options.device = gpu_->device().index;
      options.timeout = kTimeout;
      factory_ = NcclFactory(options, store_);
    } else if (!factory_) {
      GlooOptions options;
      options.rank = rank_, options.size = size_, options.timeout = kTimeout;
      factory_ = GlooFactory(options, store_);
    }
    const int64_t before = Used();
    communicators_.push_back(factory_(stream));
    return {"done", std::to_string(before), std::to_string(Used())};
  }

  RankMessage Libraries() {
    if (!on_gpu_) throw RuntimeError("a CPU's libraries are not measured");
    const LibraryUse use = MeasureLibraryMemory(gpu_index_, threads_);
    RankMessage answer{"done"};
    for (const auto& [name, bytes] : use.parts) answer.push_back(name), answer.push_back(std::to_string(bytes));
    answer.push_back(std::to_string(use.before));
    return answer;
  }

  /// Memory for a whole tensor, a shard of it, and a reduction's workspace.
  void Allocate(int64_t bytes) {
    if (whole_.bytes() >= bytes) return;
    whole_ = Memory(), workspace_ = Memory(), shard_ = Memory();  // before there is more
    whole_ = Memory(bytes, gpu_.get());
    shard_ = Memory(bytes / size_, gpu_.get());
    if (!on_gpu_) workspace_ = Memory(ReduceScatterWorkspace(bytes, size_), nullptr);
  }

  double Time(const std::string& operation, int64_t bytes, int times) {
    if (communicators_.empty()) throw RuntimeError("no communicator was made");
    if (bytes <= 0 || bytes % (4 * size_) != 0 || times < 1)
      throw RuntimeError("an impossible size or number of calls");
    Allocate(bytes);
    Communicator& comm = *communicators_.front();
    const auto floats = [](const Memory& memory, int64_t of) {
      const Tensor t = memory.Bytes(0, of);
      return Tensor(t.data, DType::f32, Shape{of / 4}, t.device);
    };
    const Tensor whole = floats(whole_, bytes), shard = floats(shard_, bytes / size_);
    const int64_t own = bytes / 4 / size_;
    const Tensor inside = whole.Flat(rank_ * own, own);
    const Tensor workspace = on_gpu_ ? Tensor() : workspace_.Bytes(0, ReduceScatterWorkspace(bytes, size_));
    std::function<void()> call;
    double calls = 1;
    if (operation == "all_gather") {
      call = [&, inside] { comm.AllGather(inside, whole); };
    } else if (operation == "reduce_scatter") {
      call = [&] { comm.ReduceScatter(whole, shard, workspace); };
    } else if (operation == "all_reduce") {
      call = [&] {
        comm.ReduceScatter(whole, shard, workspace);
        comm.AllGather(shard, whole);
      };
    } else if (operation == "send_receive") {
      calls = 2;
      const int peer = rank_ % 2 == 0 ? rank_ + 1 : rank_ - 1;
      if (peer < size_)
        call = [&, peer] {
          rank_ % 2 == 0 ? comm.Send(whole, peer) : comm.Receive(whole, peer);
          rank_ % 2 == 0 ? comm.Receive(whole, peer) : comm.Send(whole, peer);
        };
      else
        call = [] {};  // the last of an odd number has no neighbour
    } else {
      throw RuntimeError("unknown operation '" + operation + "'");
    }
    return Batch(comm, times, call) / calls;
  }

  double Batch(Communicator& comm, int times, const std::function<void()>& call) {
    comm.Barrier();
    if (!gpu_) {
      const auto begin = Clock::now();
      for (int i = 0; i < times; ++i) call();
      return std::chrono::duration<double>(Clock::now() - begin).count() / times;
    }
    gpu_->Record(begin_.get(), comm.stream());
    for (int i = 0; i < times; ++i) call();
    gpu_->Record(end_.get(), comm.stream());
    const auto begin = Clock::now();
    while (!gpu_->Done(end_.get())) {
      comm.CheckAsync();
      if (Clock::now() - begin > kTimeout) {
        comm.Abort("a call did not end in time");
        throw CommunicatorAborted("a call did not end within " + std::to_string(kTimeout.count()) + " ms");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    comm.CheckAsync();  // a kernel that was ended looks like one that is done
    return gpu_->Seconds(begin_.get(), end_.get()) / times;
  }

  const int rank_, size_;
  const bool on_gpu_;
  const int gpu_index_;
  const int threads_;
  RankStore store_;
  std::unique_ptr<Gpu> gpu_;
  GpuEvent begin_, end_;
  CommunicatorFactory factory_;
  Memory whole_, shard_, workspace_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  ///< last: they use all of the above
};

}  // namespace

int CollectiveRankMain(int argc, char** argv) {
  try {
    if (argc != 6) throw RuntimeError("ds-bench starts its ranks itself");
    BenchRank rank(Number<int>(argv[2]), Number<int>(argv[3]),
                   std::strcmp(argv[4], "cpu") == 0 ? -1 : Number<int>(argv[4]), Number<int>(argv[5]));
    for (;;) {
      const std::optional<RankMessage> command = ReceiveRankMessage(kLink);
      if (!command || command->front() == "end") return 0;
      RankMessage answer;
      try {
        answer = rank.Do(*command);
      } catch (const CommunicatorAborted& error) {
        answer = {"aborted", error.what()};
      } catch (const std::exception& error) {
        answer = {"error", error.what()};
      }
      if (!SendRankMessage(kLink, answer)) return 1;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 2;
  }
}

}  // namespace ds
