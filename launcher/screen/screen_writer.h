// What the screen shows, written by a thread of its own: a terminal that was stopped (Ctrl-S), or a pager that reads no
// further, must not stop the job, which needs its launcher to answer. What finds no place meanwhile is dropped, and
// said; logs have it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ds {

class ScreenWriter {
 public:
  /// `most_bytes` may wait to be written.
  explicit ScreenWriter(size_t most_bytes = 4 << 20);
  ~ScreenWriter();  ///< what still waits is lost
  ScreenWriter(const ScreenWriter&) = delete;
  ScreenWriter& operator=(const ScreenWriter&) = delete;

  /// Whole lines, or what draws a view. Never blocks. Errors are no matter: a closed terminal must not end a job.
  void Write(int fd, std::string_view text);

  /// Nothing waits.
  bool idle() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's too: it may be stuck in a write when this ends
};

/// "[ds-launch: 3 lines not shown, since nobody reads the screen; logs have them]"
std::string NotShown(size_t lines);

}  // namespace ds
