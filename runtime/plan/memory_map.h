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

inline constexpr int kStreams = 3;

class MemoryMap {
 public:
  /// A run of bytes with one history. Action indices by stream; -1: none yet.
  struct Run {
    std::array<int, kStreams> last_read{-1, -1, -1}, last_write{-1, -1, -1};
    int owner = -1;  ///< the buffer that was last written here
  };

  explicit MemoryMap(const Plan& plan) : plan_(plan), resident_(plan.buffers.size()) {
    for (auto& arena : arenas_) arena[0] = Run{};
  }

  /// Calls f(Run&) for each run of the buffer's bytes. A resident buffer is one run, shared by its aliases.
  template <class F>
  void Visit(int buffer, F f) {
    const Buffer& b = plan_.buffers[buffer];
    if (b.kind == BufferKind::resident) {
      f(resident_[b.alias_of >= 0 ? b.alias_of : buffer]);
      return;
    }
    std::map<int64_t, Run>& arena = arenas_[static_cast<int>(b.tier)];
    Split(arena, b.offset);
    Split(arena, b.offset + b.bytes);
    for (auto it = arena.lower_bound(b.offset); it != arena.end() && it->first < b.offset + b.bytes; ++it)
      f(it->second);
  }

  /// Raises `after[stream]` to the last action of each stream that must be done before `use` may begin.
  void Conflicts(const Use& use, std::array<int, kStreams>& after) {
    Visit(use.buffer, [&](const Run& run) {
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
      Visit(use.buffer, [&](Run& run) {
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
  std::vector<Run> resident_;
  std::array<std::map<int64_t, Run>, 3> arenas_;  // runs by their first byte; each ends where the next begins
};

}  // namespace ds
