// Who last read and wrote every byte of a plan's memory, while walking over its actions. What the streams pass and the
// checker share: conflicts are between bytes, not names, so memory that is handed on counts too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

/// Of each stream an action; -1: none.
using OfStreams = std::array<int, kStreams>;
inline OfStreams NoActions() {
  OfStreams none;
  none.fill(-1);
  return none;
}

class MemoryMap {
 public:
  /// A run of bytes with one history. Action indices by stream; -1: none yet.
  struct Run {
    OfStreams last_read = NoActions(), last_write = NoActions();
    int owner = -1;  ///< the buffer that was last written here
  };

  explicit MemoryMap(const Plan& plan) : plan_(plan), resident_(plan.buffers.size()) {
    for (auto& arena : arenas_) arena[0] = Run{};
    std::vector<int> buckets;  // of a unit
    for (const Action& action : plan.actions) {
      if (action.unit < 0 || action.bucket < 0) continue;
      buckets.resize(std::max(buckets.size(), static_cast<size_t>(action.unit) + 1), 0);
      buckets[action.unit] = std::max(buckets[action.unit], action.bucket + 1);
    }
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      const int unit = plan.buffers[b].unit;
      const bool cut = unit >= 0 && static_cast<size_t>(unit) < buckets.size() && buckets[unit] > 0;
      resident_[b].resize(cut ? static_cast<size_t>(buckets[unit]) : 1);
    }
  }

  /// Calls f(Run&) for each run of the buffer's bytes that an action of `bucket` (-1: of all) uses. A resident buffer
  /// is a run a bucket, which its aliases share.
  template <class F>
  void Visit(int buffer, int bucket, F f) {
    const Buffer& b = plan_.buffers[buffer];
    if (b.kind == BufferKind::resident) {
      std::vector<Run>& runs = resident_[b.alias_of >= 0 ? b.alias_of : buffer];
      if (bucket >= 0 && b.unit >= 0) return f(runs[bucket]);
      for (Run& run : runs) f(run);
      return;
    }
    std::map<int64_t, Run>& arena = arenas_[static_cast<int>(b.tier)];
    Split(arena, b.offset);
    Split(arena, b.offset + b.bytes);
    for (auto it = arena.lower_bound(b.offset); it != arena.end() && it->first < b.offset + b.bytes; ++it)
      f(it->second);
  }

  /// Raises `after[stream]` to the last action of each stream that must be done before `action` may begin its `use`.
  void Conflicts(const Action& action, const Use& use, OfStreams& after) {
    Visit(use.buffer, action.bucket, [&](const Run& run) {
      for (int s = 0; s < kStreams; ++s) {
        after[s] = std::max(after[s], run.last_write[s]);
        if (use.access != Access::read) after[s] = std::max(after[s], run.last_read[s]);
      }
    });
  }

  /// Notes the uses of `action`, once all its conflicts were asked for.
  void Record(int action) {
    const Action& a = plan_.actions[action];
    const int stream = static_cast<int>(a.stream);
    for (const Use& use : a.uses) {
      Visit(use.buffer, a.bucket, [&](Run& run) {
        if (use.access != Access::write) run.last_read[stream] = action;
        if (use.access != Access::read) run.last_write[stream] = action, run.owner = use.buffer;
      });
    }
  }

 private:
  static void Split(std::map<int64_t, Run>& arena, int64_t at) {
    auto next = arena.upper_bound(at);
    const auto& [begin, run] = *std::prev(next);
    if (begin != at) arena.emplace_hint(next, at, run);
  }

  const Plan& plan_;
  std::vector<std::vector<Run>> resident_;             // of a buffer: its buckets
  std::array<std::map<int64_t, Run>, kTiers> arenas_;  // runs by their first byte; each ends where the next begins
};

}  // namespace ds
