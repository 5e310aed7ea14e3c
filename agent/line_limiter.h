// The limit on what one rank may log: what is more is dropped, and said. No clock, no thread: times are told.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace ds {

struct OutputLine {
  bool error_stream = false;
  std::string text;
  bool operator==(const OutputLine&) const = default;
};

class LineLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Seconds whose lines may come at once.
  static constexpr double kBurstSeconds = 20;
  /// The newest of the dropped lines that End hands over: the reason of a death comes last. And their bytes together.
  static constexpr size_t kKeptLines = 20, kKeptBytes = 256 << 10;

  /// 0: no limit.
  explicit LineLimiter(double lines_per_second) : rate_(lines_per_second), left_(lines_per_second * kBurstSeconds) {}

  /// Those of `lines` that may pass, in order, with what is due to be said before them.
  std::vector<OutputLine> Admit(Time now, bool error_stream, std::vector<std::string> lines);

  /// What is due to be said by now: once a second, how many were dropped.
  std::vector<OutputLine> Due(Time now);
  /// When Due has something to say; nothing: not until more is dropped.
  std::optional<Time> due_at() const {
    return dropped_ > 0 ? std::optional(since_ + std::chrono::seconds(1)) : std::nullopt;
  }

  /// The rank's output has ended: what was dropped last, and the last lines of it.
  std::vector<OutputLine> End();

  uint64_t dropped_in_all() const { return dropped_in_all_; }

 private:
  OutputLine Notice();

  double rate_, left_;
  std::optional<Time> filled_at_;
  Time since_{};  ///< of the first of `dropped_`
  uint64_t dropped_ = 0, dropped_in_all_ = 0;
  std::deque<OutputLine> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace ds
