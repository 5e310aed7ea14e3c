// Every collective over NCCL against plain computation, on one GPU and on two.
#include <algorithm>
#include <cstring>

#include "test/catch.h"
#include "test/unit/gpu_runtime/nccl_ranks.h"

namespace ds::test {
namespace {

const int64_t kCounts[] = {0, 1, 3, 1037, 1'000'003};
const Tensor kNoWorkspace(nullptr, DType::u8, Shape{0});

template <class T>
std::string BytesOf(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

/// Any bytes of a rank, as elements of whichever dtype.
std::string Message(DType dtype, int64_t elements, int rank) {
  std::string bytes(static_cast<size_t>(elements) * SizeOf(dtype), '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * 37 + i / 251 + static_cast<size_t>(rank) * 101);
  return bytes;
}

/// Of the messages of ranks 0, 1, ...
std::string Messages(DType dtype, int64_t elements, int size) {
  std::string all;
  for (int r = 0; r < size; ++r) all += Message(dtype, elements, r);
  return all;
}

/// Assertions are for one thread: a rank throws.
void Expect(const std::string& got, const std::string& want, const std::string& what) {
  if (got == want) return;
  const auto differ = std::mismatch(got.begin(), got.end(), want.begin(), want.end()).first - got.begin();
  throw std::runtime_error(what + ": wrong from byte " + std::to_string(differ) + " of " + std::to_string(want.size()));
}

std::string What(const char* call, int64_t n, DType dtype) {
  return std::string(call) + " of " + std::to_string(n) + " " + NameOf(dtype);
}

/// On as many ranks as there are GPUs for, 1 and 2.
void OnRanks(const std::function<void(int rank, const CommunicatorFactory& factory)>& body) {
  for (int size = 1; size <= (HasTwoGpus() ? 2 : 1); ++size) {
    const auto outcomes = RunThreads(size, [&](int rank, const CommunicatorFactory& factory) {
      body(rank, factory);
      return std::string("done");
    });
    for (const RankOutcome& outcome : outcomes) {
      CAPTURE(size);
      CHECK(outcome.error == "");
      CHECK(outcome.value == "done");
    }
  }
}

/// A sum of two ranks' values is inexact, and has one value in any order.
float Value(int rank, int64_t i) {
  return (1.0f + static_cast<float>((i * 7 + rank * 3) % 101) / 128.0f) * (rank > 0 ? 3 : -1);
}

template <class T>
std::string Summands(int rank, int64_t n) {
  std::vector<T> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<T>(Value(rank, i));
  return BytesOf(v);
}

template <class T>
std::string Sums(int rank, int size, int64_t n) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<T> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    Sum sum = static_cast<Sum>(static_cast<T>(Value(0, rank * n + i)));
    for (int r = 1; r < size; ++r) sum += static_cast<Sum>(static_cast<T>(Value(r, rank * n + i)));
    v[i] = static_cast<T>(sum);
  }
  return BytesOf(v);
}

template <class T>
void ReduceScatter(Communicator& comm, DType dtype) {
  const int rank = comm.rank(), size = comm.size();
  for (const int64_t n : kCounts) {
    const RankMemory whole(dtype, Summands<T>(rank, size * n)), first(dtype, n), again(dtype, n);
    for (const RankMemory* shard : {&first, &again}) comm.ReduceScatter(whole, *shard, kNoWorkspace);
    Finish(comm);
    Expect(first.Bytes(), Sums<T>(rank, size, n), What("reduce_scatter", n, dtype));
    Expect(again.Bytes(), first.Bytes(), What("a second reduce_scatter", n, dtype));
    Expect(whole.Bytes(), Summands<T>(rank, size * n), What("what was added", n, dtype));
  }
}

}  // namespace

TEST_CASE("NCCL: reduce-scatter gives the sums, twice the same bits, of every dtype") {
  OnRanks([](int, const CommunicatorFactory& factory) {
    const auto comm = factory("reduce");
    ReduceScatter<float>(*comm, DType::f32);
    ReduceScatter<double>(*comm, DType::f64);
    ReduceScatter<bf16>(*comm, DType::bf16);
    ReduceScatter<f16>(*comm, DType::f16);
  });
}

TEST_CASE("NCCL: all-gather, from beside the whole and from within") {
  OnRanks([](int rank, const CommunicatorFactory& factory) {
    const auto comm = factory("gather");
    const int size = comm->size();
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::u16, DType::u8})
      for (const int64_t n : kCounts) {
        const std::string mine = Message(dtype, n, rank);
        std::string placed(static_cast<size_t>(size) * mine.size(), '\xff');
        std::copy(mine.begin(), mine.end(), placed.begin() + static_cast<int64_t>(mine.size()) * rank);
        const RankMemory shard(dtype, mine), whole(dtype, size * n), within(dtype, placed);
        comm->AllGather(shard, whole);
        comm->AllGather(within.tensor().Flat(rank * n, n), within);
        Finish(*comm);
        Expect(whole.Bytes(), Messages(dtype, n, size), What("all_gather", n, dtype));
        Expect(within.Bytes(), whole.Bytes(), What("all_gather in place", n, dtype));
      }
  });
}

TEST_CASE("NCCL: all-to-all, broadcast and barrier") {
  OnRanks([](int rank, const CommunicatorFactory& factory) {
    const auto comm = factory("mixed");
    const int size = comm->size();
    for (const int64_t n : kCounts) {
      const RankMemory send(DType::i32, Message(DType::i32, size * n, rank)), receive(DType::i32, size * n);
      comm->AllToAll(send, receive);
      comm->Barrier();
      Finish(*comm);
      std::string pieces;
      for (int r = 0; r < size; ++r)
        pieces +=
            Message(DType::i32, size * n, r).substr(static_cast<size_t>(rank * n) * 4, static_cast<size_t>(n) * 4);
      Expect(receive.Bytes(), pieces, What("all_to_all", n, DType::i32));

      for (int root = 0; root < size; ++root) {
        const RankMemory tensor(DType::u16, Message(DType::u16, n, rank == root ? root : 77));
        comm->Broadcast(tensor, root);
        Finish(*comm);
        Expect(tensor.Bytes(), Message(DType::u16, n, root), What("broadcast", n, DType::u16));
      }
    }
  });
}

TEST_CASE("NCCL: send and receive") {
  OnRanks([](int rank, const CommunicatorFactory& factory) {
    const auto comm = factory("p2p");
    if (comm->size() == 1) return;
    for (const int64_t n : kCounts) {
      const RankMemory mine(DType::bf16, Message(DType::bf16, n, rank)), theirs(DType::bf16, n);
      if (rank == 0) comm->Send(mine, 1);
      comm->Receive(theirs, 1 - rank);
      if (rank == 1) comm->Send(mine, 0);
      Finish(*comm);
      Expect(theirs.Bytes(), Message(DType::bf16, n, 1 - rank), What("receive", n, DType::bf16));
    }
  });
}

TEST_CASE("NCCL: two communicators of a rank at work at once, and the groups that come of splits") {
  OnRanks([](int rank, const CommunicatorFactory& factory) {
    const int64_t n = 100'003;
    const auto gather = factory("gather"), reduce = factory("reduce");
    const int size = gather->size();
    const auto turned = gather->Split(0, -rank), alone = gather->Split(rank, 0);
    const RankMemory shard(DType::i32, Message(DType::i32, n, rank)), whole(DType::i32, size * n),
        back(DType::i32, size * n), own(DType::i32, n);
    const RankMemory summands(DType::f32, Summands<float>(rank, size * n)), sums(DType::f32, n);
    for (int i = 0; i < 20; ++i) {
      gather->AllGather(shard, whole);
      reduce->ReduceScatter(summands, sums, kNoWorkspace);
    }
    turned->AllGather(shard, back);
    alone->AllGather(shard, own);
    for (Communicator* comm : {gather.get(), reduce.get(), turned.get(), alone.get()}) Finish(*comm);

    Expect(whole.Bytes(), Messages(DType::i32, n, size), "all_gather");
    Expect(sums.Bytes(), Sums<float>(rank, size, n), "reduce_scatter");
    std::string reversed;
    for (int r = size - 1; r >= 0; --r) reversed += Message(DType::i32, n, r);
    Expect(std::to_string(turned->rank()) + "/" + std::to_string(turned->size()),
           std::to_string(size - 1 - rank) + "/" + std::to_string(size), "place among all, turned round");
    Expect(back.Bytes(), reversed, "all_gather among all, turned round");
    Expect(std::to_string(alone->rank()) + "/" + std::to_string(alone->size()), "0/1", "place alone");
    Expect(own.Bytes(), Message(DType::i32, n, rank), "all_gather alone");
  });
}

TEST_CASE("NCCL: host memory, and extents that do not fit, are refused and leave the group whole") {
  OnRanks([](int, const CommunicatorFactory& factory) {
    const auto comm = factory("x");
    std::vector<float> host(4);
    const Tensor on_host = Tensor::Of(host.data(), Shape{4});
    const RankMemory device(DType::f32, 4), more(DType::f32, 4 * comm->size() + 1);
    const auto refused = [](const char* what, const auto& call) {
      try {
        call();
      } catch (const std::invalid_argument&) {
        return;
      }
      throw std::runtime_error(std::string("not refused: ") + what);
    };
    refused("a host shard", [&] { comm->AllGather(on_host, device); });
    refused("a host tensor", [&] { comm->Broadcast(on_host, 0); });
    refused("a whole of another size", [&] { comm->AllGather(device, more); });
    refused("a message to oneself", [&] { comm->Send(device, comm->rank()); });
    refused("a negative color", [&] { comm->Split(-1, 0); });
    comm->Barrier();
    Finish(*comm);
  });
}

}  // namespace ds::test
