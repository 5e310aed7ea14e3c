// Promises: loops over memory nodes run every block once whatever the nodes, threads and processors; a thread begins
// with what its node holds; pages are asked for where the loops' threads are.
#include "kernels/numa.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "kernels/optimizer.h"
#include "test/catch.h"

namespace ds::detail {
namespace {

namespace fs = std::filesystem;

/// A folder like /sys/devices/system/node.
class FakeNodes {
 public:
  FakeNodes() : path_(fs::temp_directory_path() / ("ds-numa-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~FakeNodes() { fs::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  std::string str() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST_CASE("memory nodes are those of the processors that a process may run on") {
  const FakeNodes folder;
  folder.Write("has_cpu", "0,2-3\n");  // node 1 is memory alone
  folder.Write("node0/cpulist", "0-1,4\n");
  folder.Write("node2/cpulist", "2\n");
  folder.Write("node3/cpulist", "3,5-7\n");
  std::vector<bool> allowed(8, true);
  NumaNodes nodes = ReadNumaNodes(folder.str(), allowed);
  CHECK(nodes.ids == std::vector<int>{0, 2, 3});
  CHECK(nodes.index_of_cpu == std::vector<int>{0, 0, 1, 2, 0, 2, 2, 2});
  allowed[2] = allowed[0] = false;
  nodes = ReadNumaNodes(folder.str(), allowed);
  CHECK(nodes.ids == std::vector<int>{0, 3});
  nodes.cpu = [] { return 6; };
  CHECK(nodes.Current() == 1);
  nodes.cpu = [] { return 4; };
  CHECK(nodes.Current() == 0);
  nodes.cpu = [] { return 4096; };  // one that came later
  CHECK(nodes.Current() == 0);
}

TEST_CASE("a host that tells nothing of its memory nodes, or nonsense, has one") {
  const FakeNodes folder;
  const std::vector<bool> allowed(8, true);
  CHECK(ReadNumaNodes(folder.str() + "/absent", allowed).count() == 1);
  for (const char* text : {"", "\n", "x", "0-", "3-1", "-1", "0;1", "99999999999"}) {
    CAPTURE(text);
    folder.Write("has_cpu", text);
    CHECK(ReadNumaNodes(folder.str(), allowed).count() == 1);
  }
  folder.Write("has_cpu", "0-19");  // more than the loops are made for
  for (int node = 0; node < 20; ++node) folder.Write("node" + std::to_string(node) + "/cpulist", std::to_string(node));
  CHECK(ReadNumaNodes(folder.str(), std::vector<bool>(20, true)).count() == 1);
  CHECK(ReadNumaNodes(folder.str(), std::vector<bool>(kMostNodes, true)).count() == kMostNodes);
}

TEST_CASE("this host's memory nodes hold the processor that runs this") {
  const NumaNodes& nodes = OwnNumaNodes();
  REQUIRE(nodes.count() >= 1);
  CHECK(nodes.Current() >= 0);
  CHECK(nodes.Current() < nodes.count());
}

std::atomic<int> next_cpu{0};

TEST_CASE("loops over memory nodes run every block once") {
  for (const int count : {1, 2, 3, 8})
    for (const int threads : {1, 2, 3, 5, 16})
      for (const int64_t total : {0, 1, 9, 10, 11, 29, 1000}) {
        CAPTURE(count, threads, total);
        NumaNodes nodes;
        nodes.ids.resize(static_cast<size_t>(count));
        for (int cpu = 0; cpu < 7; ++cpu) nodes.index_of_cpu.push_back(cpu % count);
        nodes.cpu = [] { return next_cpu.fetch_add(1) % 8; };  // wherever threads happen to be
        std::vector<std::atomic<int>> runs(static_cast<size_t>(total));
        std::atomic<int> wrong{0};
        ParallelOnNodes(KernelContext{threads}, nodes, total, 10, [&](int64_t begin, int64_t end) {
          if (begin % 10 != 0 || end != std::min(begin + 10, total) || begin >= end) ++wrong;
          for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
        });
        CHECK(wrong == 0);
        for (const auto& run : runs) REQUIRE(run == 1);
      }
}

TEST_CASE("threads begin with the part of their node, each its own") {
  NumaNodes nodes;
  nodes.ids = {0, 1};
  nodes.index_of_cpu = {0, 1};
  nodes.cpu = [] { return 1 - omp_get_thread_num() % 2; };  // even threads are near to the second node
  constexpr int kThreads = 4;
  constexpr int64_t kTotal = 400, kBlock = 10;
  std::mutex lock;
  std::vector<int64_t> first(kThreads, -1);
  std::atomic<int> begun{0};
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  ParallelOnNodes(KernelContext{kThreads}, nodes, kTotal, kBlock, [&](int64_t begin, int64_t) {
    const auto thread = static_cast<size_t>(omp_get_thread_num());
    {
      const std::lock_guard guard(lock);
      if (first[thread] >= 0) return;
      first[thread] = begin;
    }
    ++begun;  // nobody goes on before all have begun: so nobody has helped another yet
    while (begun < kThreads && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  });
  REQUIRE(begun == kThreads);
  CHECK(std::set<int64_t>(first.begin(), first.end()) == std::set<int64_t>{0, 100, 200, 300});
  for (int thread = 0; thread < kThreads; ++thread)
    CHECK((first[static_cast<size_t>(thread)] >= kTotal / 2) == (thread % 2 == 0));
}

TEST_CASE("what a block throws reaches the caller of a loop over memory nodes") {
  for (const int threads : {1, 3})
    CHECK_THROWS_AS(ParallelOnNodes(KernelContext{threads}, NumaNodes(), 100, 10,
                                    [](int64_t begin, int64_t) {
                                      if (begin == 50) throw std::runtime_error("no");
                                    }),
                    std::runtime_error);
}

/// The policy of the page at `address`, and the first node that it names; -1 where the system does not tell.
std::pair<int, int> PolicyAt(const void* address) {
  int policy = -1;
  unsigned long mask[16] = {};
  constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
  if (::syscall(SYS_get_mempolicy, &policy, mask, sizeof mask * 8, address, kOfAddress) != 0) return {-1, -1};
  for (int node = 0; node < 1024; ++node)
    if (mask[node / 64] >> (node % 64) & 1) return {policy, node};
  return {policy, -1};
}

TEST_CASE("pages are asked for on the nodes of the threads, and hold what is written to them") {
  constexpr int64_t kCount = 1 << 20;
  const int64_t page = ::sysconf(_SC_PAGESIZE), bytes = kCount * 4;
  auto* const memory = static_cast<char*>(::mmap(nullptr, static_cast<size_t>(bytes + 2 * page), PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  char* const data = memory + page + 64;  // begins and ends inside pages, of which others may have a part
  NumaNodes nodes;
  nodes.ids = {0, 0};  // every host has node 0
  constexpr int kPreferred = 1;
  if (PlaceOnNodes(nodes, data, kCount, 4, 1024)) {
    CHECK(PolicyAt(data + page) == std::pair(kPreferred, 0));
    CHECK(PolicyAt(data + bytes / 2) == std::pair(kPreferred, 0));
    CHECK(PolicyAt(data + bytes - 2 * page) == std::pair(kPreferred, 0));
    CHECK(PolicyAt(memory).first == 0);
    CHECK(PolicyAt(data).first == 0);
    CHECK(PolicyAt(data + bytes).first == 0);
  } else {
    WARN("the system takes no advice on memory nodes");
  }
  nodes.ids = {0, 1023};
  CHECK_FALSE(PlaceOnNodes(nodes, data, kCount, 4, 1024));  // no such node: advice that is not taken, no error
  CHECK(PlaceOnNodes(NumaNodes(), data, kCount, 4, 1024));
  CHECK(PlaceStepMemory(Tensor(data, DType::f32, {kCount})) == PlaceStepMemory(Tensor(data, DType::bf16, {kCount})));
  CHECK(PlaceStepMemory(Tensor()));
  CHECK(PlaceStepMemory(Tensor(data, DType::f32, {kCount}, {DeviceKind::cuda, 0})));
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 251);
  int64_t wrong = 0;
  for (int64_t i = 0; i < bytes; ++i) wrong += data[i] != static_cast<char>(i % 251);
  CHECK(wrong == 0);
  ::munmap(memory, static_cast<size_t>(bytes + 2 * page));
}

}  // namespace
}  // namespace ds::detail
