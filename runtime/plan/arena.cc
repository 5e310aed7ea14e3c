// Places buffers in their tier's arena: two that are alive at one time never share memory.
//
// Largest first, each into the smallest gap that holds it among the buffers alive at its time ("greedy by size",
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): close to the sum of what is
// alive at the worst moment. Buffers are found by blocks of time, so that long plans are placed in about linear time.
#include <algorithm>
#include <numeric>

#include "runtime/plan/lifetime.h"
#include "runtime/plan/passes.h"

namespace ds {
namespace {

constexpr int64_t kArenaAlignment = 64;  // bytes: a cache line, and the widest vector
constexpr int kBlock = 64;               // actions

class Arena {
 public:
  Arena(Plan& plan, const std::vector<Lifetime>& lifetimes, int64_t alignment)
      : plan_(plan), lifetimes_(lifetimes), alignment_(alignment), placed_(plan.actions.size() / kBlock + 1) {}

  void Place(int buffer) {
    Buffer& b = plan_.buffers[buffer];
    const Lifetime life = lifetimes_[buffer];
    b.offset = BestFit(Neighbours(life), b.bytes);
    for (int block = life.first / kBlock; block <= life.last / kBlock; ++block) placed_[block].push_back(buffer);
    end_ = std::max(end_, AlignUp(b.offset + b.bytes));
  }

  int64_t end() const { return end_; }

 private:
  struct Range {
    int64_t begin, end;
  };
  int64_t AlignUp(int64_t n) const { return (n + alignment_ - 1) / alignment_ * alignment_; }

  /// Ranges of the buffers alive at some time of `life`, by their begin. One may come more than once.
  std::vector<Range> Neighbours(Lifetime life) const {
    std::vector<Range> ranges;
    for (int block = life.first / kBlock; block <= life.last / kBlock; ++block) {
      for (int other : placed_[block]) {
        const Buffer& o = plan_.buffers[other];
        if (lifetimes_[other].first <= life.last && life.first <= lifetimes_[other].last)
          ranges.push_back({o.offset, AlignUp(o.offset + o.bytes)});
      }
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    return ranges;
  }

  static int64_t BestFit(const std::vector<Range>& taken, int64_t bytes) {
    int64_t best = -1, best_gap = 0, end = 0;
    for (const Range& range : taken) {
      const int64_t gap = range.begin - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) best = end, best_gap = gap;
      end = std::max(end, range.end);
    }
    return best >= 0 ? best : end;
  }

  Plan& plan_;
  const std::vector<Lifetime>& lifetimes_;
  const int64_t alignment_;
  std::vector<std::vector<int>> placed_;  // of a block of actions: the buffers alive in it
  int64_t end_ = 0;
};

}  // namespace

void PlaceArena(Plan& plan) {
  const std::vector<Lifetime> lifetimes = Lifetimes(plan);
  for (int tier = 0; tier < kTiers; ++tier) {
    std::vector<int> order;
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      const Buffer& buffer = plan.buffers[b];
      if (buffer.kind != BufferKind::resident && static_cast<int>(buffer.tier) == tier && lifetimes[b].first >= 0)
        order.push_back(static_cast<int>(b));
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return plan.buffers[a].bytes > plan.buffers[b].bytes; });
    Arena arena(plan, lifetimes, static_cast<Tier>(tier) == Tier::device ? kArenaAlignment : kFileAlignment);
    for (int buffer : order) arena.Place(buffer);
    plan.arena_bytes[tier] = arena.end();
  }
}

}  // namespace ds
