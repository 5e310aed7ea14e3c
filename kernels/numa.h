// Memory nodes of the host (NUMA): which a thread is near to, where pages go, and loops whose threads work on what is
// near to them. Internal to the CPU kernels.
//
// n elements are dealt out to the nodes in order, a part of whole blocks each (PartOf): a rule that looks at n
// and the nodes alone. Pages are placed by it, and loops over the same n follow it, whatever threads there are and
// wherever they run.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/parallel.h"
#include "kernels/tensor.h"

namespace ds {
namespace detail {

/// Memory nodes that have processors.
struct NumaNodes {
  std::vector<int> ids = {0};          ///< the system's numbers, ascending; never empty
  std::vector<int> index_of_cpu = {};  ///< by processor: the place in `ids` of the node it belongs to; absent: 0
  int (*cpu)() = nullptr;              ///< the processor that the calling thread runs on; null: the system is asked

  int count() const { return static_cast<int>(ids.size()); }
  /// The place in `ids` of the node that the calling thread is near to.
  int Current() const;
};

constexpr int kMostNodes = 16;

/// The nodes under `folder` (Linux: /sys/devices/system/node) of the processors that are `allowed`, by their number.
/// One node where the folder tells nothing, or of more than kMostNodes.
NumaNodes ReadNumaNodes(const std::string& folder, const std::vector<bool>& allowed);

/// Those of this process, by the processors that it might run on when it first asked.
const NumaNodes& OwnNumaNodes();

/// Blocks [first, second) of `blocks`: part `index` of `parts`. A node's part is that of `nodes` parts; cut further for
/// its threads it begins and ends at the same blocks.
inline std::pair<int64_t, int64_t> PartOf(int64_t blocks, int parts, int index) {
  return {blocks * index / parts, blocks * (index + 1) / parts};
}

/// body(begin, end) for consecutive blocks of `block` of the `total` items. A thread takes a part of those of the node
/// that it is near to, the same in every call while it stays there, and works through it in order; then it helps with
/// what others have left: a thread that is kept from its processor holds nobody up. `body` must do the same whichever
/// thread runs it.
template <class Body>
void ParallelOnNodes(const KernelContext& context, const NumaNodes& nodes, int64_t total, int64_t block,
                     const Body& body) {
  const int64_t blocks = (total + block - 1) / block;
  const auto run = [&](int64_t i) { body(i * block, std::min(total, (i + 1) * block)); };
  const int threads = static_cast<int>(std::min<int64_t>(context.threads, blocks));
  if (threads <= 1) {
    for (int64_t i = 0; i < blocks; ++i) run(i);
    return;
  }
  struct alignas(64) Part {
    std::atomic<bool> owned{false};
    std::atomic<int64_t> taken{0};
  };
  const int of_node = (threads + nodes.count() - 1) / nodes.count(), count = of_node * nodes.count();
  std::vector<Part> parts(static_cast<size_t>(count));
  const auto work_through = [&](int index) {
    const auto [first, last] = PartOf(blocks, count, index);
    for (int64_t i; (i = first + parts[index].taken.fetch_add(1, std::memory_order_relaxed)) < last;) run(i);
  };
  FirstException exception;
#pragma omp parallel num_threads(threads)
  exception.Guard([&] {
    const int begin = nodes.Current() * of_node, wanted = omp_get_thread_num() % of_node;
    const auto near = [&](int step) { return begin + (wanted + step) % of_node; };
    for (int step = 0; step < of_node; ++step) {
      if (parts[near(step)].owned.exchange(true, std::memory_order_relaxed)) continue;
      work_through(near(step));
      break;
    }
    for (int step = 0; step < of_node; ++step) work_through(near(step));
    for (int step = of_node; step < count; ++step) work_through((begin + step) % count);
  });
  exception.Rethrow();
}

/// Asks for the pages of [data, data + total * bytes) that have not been touched on the nodes that ParallelOnNodes'
/// threads of `total` elements in blocks of `block` are near to. Advice: false where the system takes none. With one
/// node there is nothing to ask.
bool PlaceOnNodes(const NumaNodes& nodes, void* data, int64_t total, int64_t bytes, int64_t block);

}  // namespace detail
}  // namespace ds
