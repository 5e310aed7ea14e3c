// Every collective over every backend against plain computation; the backends against each other, bit for bit.
#include <algorithm>
#include <cstring>

#include "test/catch.h"
#include "test/unit/comm/world.h"

namespace ds::test {
namespace {

constexpr char kPoison = 0x5a;

template <class T>
std::vector<T> Poisoned(int64_t n) {
  std::vector<T> v(n);
  if (n > 0) std::memset(static_cast<void*>(v.data()), kPoison, n * sizeof(T));
  return v;
}

template <class T>
Tensor View(std::vector<T>& v) {
  return Tensor::Of(v.data(), Shape{static_cast<int64_t>(v.size())});
}

template <class T>
std::string Bytes(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

/// Element i of rank r: values whose sum depends on the order of the additions, in any 16-bit or 32-bit type.
float Value(int rank, int64_t i) {
  const float scale[] = {1.0f, 16384.0f, -16384.0f, 0.0078125f, 3.0f};
  return scale[(rank + i) % 5] * (1.0f + static_cast<float>((i * 7 + rank * 3) % 11) / 16.0f);
}

template <class T>
T Of(float x) {
  return static_cast<T>(x);
}

template <class T>
std::vector<T> Contribution(int rank, int64_t n) {
  std::vector<T> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = Of<T>(Value(rank, i));
  return v;
}

/// What ReduceScatter must give rank r, from the definition: f32 sums (f64 for f64) in rank order, rounded once.
template <class T>
std::vector<T> ExpectedSum(int rank, int size, int64_t n) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<T> v(n);
  for (int64_t i = 0; i < n; ++i) {
    Sum sum = static_cast<Sum>(Of<T>(Value(0, rank * n + i)));
    for (int r = 1; r < size; ++r) sum += static_cast<Sum>(Of<T>(Value(r, rank * n + i)));
    v[i] = static_cast<T>(sum);
  }
  return v;
}

template <class T>
std::string ReduceScatterBody(int rank, const CommunicatorFactory& factory, int64_t n) {
  const auto comm = factory("reduce");
  auto whole = Contribution<T>(rank, comm->size() * n);
  auto shard = Poisoned<T>(n);
  auto workspace = Poisoned<uint8_t>(ReduceScatterWorkspace(whole.size() * sizeof(T), comm->size()));
  comm->ReduceScatter(View(whole), View(shard), View(workspace));
  if (Bytes(whole) != Bytes(Contribution<T>(rank, comm->size() * n))) throw std::runtime_error("whole was changed");
  return Bytes(shard);
}

template <class T>
void CheckReduceScatterOf(Backend backend, int size, int64_t n) {
  const auto outcomes = RunRanks(backend, size, [n](int rank, const CommunicatorFactory& factory) {
    return ReduceScatterBody<T>(rank, factory, n);
  });
  for (int r = 0; r < size; ++r) {
    CAPTURE(r, n);
    CHECK(outcomes[r].error == "");
    CHECK(outcomes[r].value == Bytes(ExpectedSum<T>(r, size, n)));
  }
}

std::string AllGatherBody(int rank, const CommunicatorFactory& factory, int64_t n, bool in_place) {
  const auto comm = factory("gather");
  auto whole = Poisoned<float>(comm->size() * n);
  auto shard = Contribution<float>(rank, n);
  if (in_place) {
    std::copy(shard.begin(), shard.end(), whole.begin() + rank * n);
    comm->AllGather(View(whole).Flat(rank * n, n), View(whole));
  } else {
    comm->AllGather(View(shard), View(whole));
  }
  return Bytes(whole);
}

/// Several kinds of calls, on two streams, one after another.
std::string MixedBody(int rank, const CommunicatorFactory& factory) {
  const auto a = factory("a"), b = factory("b");
  const int size = a->size();
  std::string result;

  std::vector<int64_t> send(3 * size), receive = Poisoned<int64_t>(3 * size);
  for (size_t i = 0; i < send.size(); ++i) send[i] = 1000 * rank + static_cast<int64_t>(i);
  a->AllToAll(View(send), View(receive));
  result += Bytes(receive);

  for (int root = 0; root < size; ++root) {
    std::vector<uint16_t> text(5, rank == root ? static_cast<uint16_t>(root + 7) : static_cast<uint16_t>(0xdead));
    b->Broadcast(View(text), root);
    result += Bytes(text);
  }
  a->Barrier();

  // A pipeline: each rank hands on what it received, plus one.
  std::vector<int32_t> token = rank == 0 ? std::vector<int32_t>{40} : Poisoned<int32_t>(1);
  if (rank > 0) b->Receive(View(token), rank - 1);
  if (rank + 1 < size) {
    std::vector<int32_t> next = {token[0] + 1};
    b->Send(View(next), rank + 1);
  }
  return result + Bytes(token);
}

std::string ExpectedMixed(int rank, int size) {
  std::string result;
  for (int r = 0; r < size; ++r) {
    std::vector<int64_t> piece(3);
    for (int i = 0; i < 3; ++i) piece[i] = 1000 * r + 3 * rank + i;
    result += Bytes(piece);
  }
  for (int root = 0; root < size; ++root) result += Bytes(std::vector<uint16_t>(5, static_cast<uint16_t>(root + 7)));
  return result + Bytes(std::vector<int32_t>{40 + rank});
}

/// Odd ranks and even ranks apart, each in reverse order; then both groups at work at once.
std::string SplitBody(int rank, const CommunicatorFactory& factory) {
  const auto all = factory("all");
  const auto part = all->Split(rank % 2, -rank);
  std::vector<int32_t> mine = {rank}, whole = Poisoned<int32_t>(part->size());
  part->AllGather(View(mine), View(whole));
  all->Barrier();
  return std::to_string(part->rank()) + "/" + std::to_string(part->size()) + Bytes(whole);
}

std::string ExpectedSplit(int rank, int size) {
  std::vector<int32_t> members;
  for (int r = size - 1; r >= 0; --r) {
    if (r % 2 == rank % 2) members.push_back(r);
  }
  const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
  return std::to_string(place) + "/" + std::to_string(members.size()) + Bytes(members);
}

void CheckAll(Backend backend, int size) {
  INFO(NameOf(backend) << ", " << size << " ranks");
  CheckReduceScatterOf<float>(backend, size, 1);
  CheckReduceScatterOf<float>(backend, size, 1037);
  CheckReduceScatterOf<double>(backend, size, 7);
  CheckReduceScatterOf<bf16>(backend, size, 129);
  CheckReduceScatterOf<f16>(backend, size, 33);
  CheckReduceScatterOf<float>(backend, size, 0);
  for (const int64_t n : {0, 1, 333}) {
    for (const bool in_place : {false, true}) {
      const auto outcomes = RunRanks(backend, size, [&](int rank, const CommunicatorFactory& factory) {
        return AllGatherBody(rank, factory, n, in_place);
      });
      std::string expected;
      for (int r = 0; r < size; ++r) expected += Bytes(Contribution<float>(r, n));
      for (const Outcome& outcome : outcomes) {
        CHECK(outcome.error == "");
        CHECK(outcome.value == expected);
      }
    }
  }
  const auto mixed = RunRanks(backend, size, MixedBody);
  const auto split = RunRanks(backend, size, SplitBody);
  for (int r = 0; r < size; ++r) {
    CHECK(mixed[r].error == "");
    CHECK(mixed[r].value == ExpectedMixed(r, size));
    CHECK(split[r].error == "");
    CHECK(split[r].value == ExpectedSplit(r, size));
  }
}

}  // namespace

TEST_CASE("threads: every collective against plain computation") {
  for (const int size : {1, 2, 3, 4, 5, 16}) CheckAll(Backend::threads, size);
}

TEST_CASE("gloo among threads: every collective against plain computation") {
  for (const int size : {1, 2, 3, 5}) CheckAll(Backend::gloo_threads, size);
}

TEST_CASE("gloo among processes: every collective against plain computation") {
  for (const int size : {2, 4}) CheckAll(Backend::gloo_processes, size);
}

TEST_CASE("the values of these tests tell one order of additions from another") {
  const int size = 4;
  const int64_t n = 1037;
  int64_t differ = 0;
  for (int64_t i = 0; i < n; ++i) {
    float up = Value(0, i), down = Value(size - 1, i);
    for (int r = 1; r < size; ++r) {
      up += Value(r, i);
      down += Value(size - 1 - r, i);
    }
    differ += up != down;
  }
  CHECK(differ > n / 10);
}

TEST_CASE("large messages, every backend, the same bits") {
  // 6 MiB a piece: more than any socket buffer here takes at once.
  const int64_t n = 3 * 512 * 1024 + 1;
  std::vector<std::string> first;
  for (const Backend backend : {Backend::threads, Backend::gloo_threads, Backend::gloo_processes}) {
    INFO(NameOf(backend));
    const auto outcomes = RunRanks(backend, 3, [&](int rank, const CommunicatorFactory& factory) {
      return ReduceScatterBody<float>(rank, factory, n);
    });
    for (int r = 0; r < 3; ++r) {
      CHECK(outcomes[r].error == "");
      CHECK((outcomes[r].value == Bytes(ExpectedSum<float>(r, 3, n))));
    }
  }
}

TEST_CASE("a group of one copies") {
  const auto comm = SingleRankFactory()("solo");
  std::vector<float> a = {1, 2, 3}, b = Poisoned<float>(3), c = Poisoned<float>(3);
  comm->AllGather(View(a), View(b));
  CHECK(a == b);
  comm->ReduceScatter(View(a), View(c), {nullptr, DType::u8, Shape{0}});
  CHECK(a == c);
  comm->Barrier();
  REQUIRE_THROWS_AS(comm->Send(View(a), 0), std::invalid_argument);
  comm->Abort("enough");
  REQUIRE_THROWS_AS(comm->Barrier(), CommunicatorAborted);
}

TEST_CASE("wrong extents are the caller's error and leave the group whole") {
  const auto outcomes = RunRanks(Backend::threads, 2, [](int rank, const CommunicatorFactory& factory) {
    const auto comm = factory("x");
    std::vector<float> shard(3), whole(5), sums(2);
    REQUIRE_THROWS_AS(comm->AllGather(View(shard), View(whole)), std::invalid_argument);
    std::vector<float> even(4);
    std::vector<uint8_t> small(15);
    REQUIRE_THROWS_AS(comm->ReduceScatter(View(even), View(sums), View(small)), std::invalid_argument);
    std::vector<int32_t> integers(4), half(2);
    std::vector<uint8_t> enough(16);
    REQUIRE_THROWS_AS(comm->ReduceScatter(View(integers), View(half), View(enough)), std::invalid_argument);
    REQUIRE_THROWS_AS(comm->Broadcast(View(even), 2), std::invalid_argument);
    REQUIRE_THROWS_AS(comm->Receive(View(even), rank), std::invalid_argument);
    comm->Barrier();
    return std::string("whole");
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.value == "whole");
}

}  // namespace ds::test
