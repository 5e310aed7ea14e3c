#include "kernels/numa.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace ds::detail {
namespace {

/// "0-3,8-11" as numbers; empty where it is something else.
std::vector<int> ParseList(const std::string& text) {
  std::vector<int> numbers;
  const char *at = text.data(), *const end = at + text.size();
  while (at < end && *at != '\n') {
    int first = 0, last = 0;
    auto read = std::from_chars(at, end, first);
    last = first;
    if (read.ec == std::errc() && read.ptr < end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last < first || last > 1 << 16) return {};
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    at = read.ptr;
    if (at < end && *at == ',')
      ++at;
    else if (at < end && *at != '\n')
      return {};
  }
  return numbers;
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

int NumaNodes::Current() const {
  if (count() == 1) return 0;
  int running = -1;
  if (cpu) running = cpu();
#if defined(__linux__)
  else
    running = ::sched_getcpu();
#endif
  return running >= 0 && running < static_cast<int>(index_of_cpu.size()) ? index_of_cpu[running] : 0;
}

NumaNodes ReadNumaNodes(const std::string& folder, const std::vector<bool>& allowed) {
  NumaNodes nodes;
  nodes.ids.clear();
  nodes.index_of_cpu.assign(allowed.size(), 0);
  for (const int id : ParseList(FirstLine(folder + "/has_cpu"))) {
    bool used = false;
    for (const int cpu : ParseList(FirstLine(folder + "/node" + std::to_string(id) + "/cpulist"))) {
      if (cpu >= static_cast<int>(allowed.size()) || !allowed[cpu]) continue;
      nodes.index_of_cpu[cpu] = nodes.count();
      used = true;
    }
    if (used) nodes.ids.push_back(id);
  }
  if (nodes.ids.empty() || nodes.count() > kMostNodes) return {};
  return nodes;
}

const NumaNodes& OwnNumaNodes() {
  static const NumaNodes nodes = [] {
#if defined(__linux__)
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
      std::vector<bool> allowed(CPU_SETSIZE);
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) allowed[cpu] = CPU_ISSET(cpu, &set);
      return ReadNumaNodes("/sys/devices/system/node", allowed);
    }
#endif
    return NumaNodes();
  }();
  return nodes;
}

bool PlaceOnNodes([[maybe_unused]] const NumaNodes& nodes, [[maybe_unused]] void* data, [[maybe_unused]] int64_t total,
                  [[maybe_unused]] int64_t bytes, [[maybe_unused]] int64_t block) {
  if (nodes.count() == 1 || total <= 0) return true;
#if defined(__linux__) && defined(SYS_mbind)
  constexpr unsigned long kPreferred = 1;      // MPOL_PREFERRED of linux/mempolicy.h: elsewhere where the node is full
  constexpr int64_t kHuge = int64_t{2} << 20;  // parts of many such pages end between them, so that none is split
  const int64_t page =
      total * bytes / nodes.count() >= 8 * kHuge ? kHuge : std::max<long>(::sysconf(_SC_PAGESIZE), 4096);
  const int64_t blocks = (total + block - 1) / block;
  const auto from = reinterpret_cast<intptr_t>(data);
  bool placed = true;
  for (int k = 0; k < nodes.count(); ++k) {
    const auto [first, last] = PartOf(blocks, nodes.count(), k);
    // Whole pages: one that two nodes share goes to the first of them, what others have on the outer ones stays.
    const auto up = [&](int64_t at) { return (from + std::min(total, at * block) * bytes + page - 1) / page * page; };
    const intptr_t begin = up(first), end = k + 1 < nodes.count() ? up(last) : (from + total * bytes) / page * page;
    if (begin >= end) continue;
    constexpr int kBits = 8 * sizeof(unsigned long);
    std::array<unsigned long, 16> mask{};  // the call wants one more than its bits
    const size_t word = static_cast<size_t>(nodes.ids[k]) / kBits;
    if (word >= mask.size()) return false;
    mask[word] = 1ul << (nodes.ids[k] % kBits);
    placed &= ::syscall(SYS_mbind, begin, static_cast<unsigned long>(end - begin), kPreferred, mask.data(),
                        mask.size() * kBits + 1, 0u) == 0;
  }
  return placed;
#else
  return false;
#endif
}

}  // namespace ds::detail
