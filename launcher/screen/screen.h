// What the person who started a job sees while it runs: on a terminal a live view, redrawn in place, with log lines
// above it; elsewhere one line every training.log_every steps. It never blocks, whatever the terminal does. The job's
// state is told to it; it decides nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proto/deepshard.pb.h"
#include "runtime/run/step_line.h"

namespace ds {

/// What does not change during a run.
struct ScreenJob {
  std::string name, run_directory;
  std::vector<std::string> rank_hosts;  ///< by rank
  int64_t steps = 0;                    ///< 0: a program, which has none
  int64_t log_every = 10;
};

class Screen {
 public:
  virtual ~Screen() = default;  ///< leaves the terminal as it was

  virtual void Health(const deepshard::v1::WorkerHealth& health) = 0;
  virtual void Step(const deepshard::v1::StepRecord& record) = 0;
  /// A line that a worker wrote.
  virtual void Line(int rank, bool error_stream, std::string_view line) = 0;
  /// Something that happened to the job.
  virtual void Notice(std::string_view text) = 0;
  /// Redraws what changed, at most 4 times a second.
  virtual void Refresh(std::chrono::steady_clock::time_point now) = 0;
  /// The next attempt has other ranks.
  virtual void Relayout(const ScreenJob& job) = 0;
  /// Ends the live view, leaving its last state to read. Whether all that was to be shown has been written, which may
  /// never be: call again.
  virtual bool Close() = 0;
};

/// The live view when standard output is a terminal that can move its cursor, else lines. NO_COLOR is respected.
std::unique_ptr<Screen> MakeScreen(const ScreenJob& job);

/// Whether some lines written to standard error would not wait for who reads it. Nobody waits for what is closed.
bool ErrorsAreRead();

/// A line made safe for a terminal: UTF-8, without control characters other than tab and without escape sequences but,
/// with `color`, those of colors (SGR), which end with the line. Of a line with carriage returns what they left to see.
std::string TerminalLine(std::string_view line, bool color);
/// The line without sequences of colors (SGR); the rest byte for byte.
std::string WithoutColors(std::string_view line);

/// The rows of the live view, each at most `columns` wide and at most `rows` of them. Pure: what tests look at.
struct LiveState {
  ScreenJob job;
  std::vector<deepshard::v1::WorkerHealth> ranks;
  deepshard::v1::StepRecord last;
  double left_seconds = -1;
  bool color = false;
};
std::vector<std::string> LiveRows(const LiveState& state, int columns, int rows);

}  // namespace ds
