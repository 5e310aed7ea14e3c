#include "launcher/screen/screen.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "launcher/screen/screen_writer.h"
#include "runtime/base/terminal.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

constexpr auto kRedrawEvery = std::chrono::milliseconds(250);
constexpr double kSmoothing = 0.1;  // weight of the newest step in the step time that the time left is based on

bool ColorsWanted() {
  const char* no_color = std::getenv("NO_COLOR");
  return !no_color || !*no_color;
}

/// Seconds to the last step, from a smoothed step time.
class TimeLeft {
 public:
  double After(const pb::StepRecord& record, int64_t steps) {
    double seconds = record.step_ms() * 1e-3;
    step_seconds_ = step_seconds_ == 0 ? seconds : step_seconds_ + kSmoothing * (seconds - step_seconds_);
    return step_seconds_ * static_cast<double>(steps - record.step());
  }

 private:
  double step_seconds_ = 0;
};

class LineScreen final : public Screen {
 public:
  explicit LineScreen(const ScreenJob& job) : job_(job) {}

  void Health(const pb::WorkerHealth&) override {}
  void Step(const pb::StepRecord& record) override {
    double left = left_.After(record, job_.steps);
    bool due = record.step() == 1 || record.step() == job_.steps || record.has_validation_loss() ||
               (job_.log_every > 0 && record.step() % job_.log_every == 0);
    if (due) writer_.Write(STDOUT_FILENO, StepLine(record, job_.steps, left) + "\n");
  }
  void Line(int rank, bool error_stream, std::string_view line) override {
    const int fd = error_stream ? STDERR_FILENO : STDOUT_FILENO;
    std::string text = "[" + job_.rank_hosts[static_cast<size_t>(rank)] + " " + std::to_string(rank) + "] ";
    if (IsTerminal(fd)) {  // one without a live view: it may not know colors
      text += TerminalLine(line, /*color=*/false);
    } else {
      text += colors_ ? line : WithoutColors(line);
    }
    writer_.Write(fd, text + "\n");
  }
  void Notice(std::string_view text) override { writer_.Write(STDOUT_FILENO, std::string(text) + "\n"); }
  void Refresh(Clock::time_point) override {}
  bool Close() override { return writer_.idle(); }
  void Relayout(const ScreenJob& job) override { job_ = job; }

 private:
  ScreenJob job_;
  ScreenWriter writer_;
  TimeLeft left_;
  bool colors_ = ColorsWanted();
};

class LiveScreen final : public Screen {
 public:
  explicit LiveScreen(const ScreenJob& job) {
    Relayout(job);
    state_.color = ColorsWanted();
  }
  ~LiveScreen() override { Close(); }

  void Relayout(const ScreenJob& job) override {
    state_.job = job;
    state_.ranks.assign(job.rank_hosts.size(), {});
    for (size_t i = 0; i < state_.ranks.size(); ++i) {
      state_.ranks[i].set_rank(static_cast<uint32_t>(i));
      state_.ranks[i].set_state("starting");
    }
    changed_ = true;
  }

  void Health(const pb::WorkerHealth& health) override {
    if (health.rank() < state_.ranks.size()) state_.ranks[health.rank()] = health;
    changed_ = true;
  }
  void Step(const pb::StepRecord& record) override {
    state_.last = record;
    state_.left_seconds = left_.After(record, state_.job.steps);
    changed_ = true;
  }
  void Line(int rank, bool, std::string_view line) override {
    if (pending_.size() > kMaxPending && !writer_.idle()) {
      ++dropped_lines_;
      return;
    }
    pending_ += "[" + state_.job.rank_hosts[static_cast<size_t>(rank)] + " " + std::to_string(rank) + "] " +
                TerminalLine(line, state_.color) + "\n";
    changed_ = true;
    if (pending_.size() > kMaxPending && writer_.idle()) Draw();
  }
  void Notice(std::string_view text) override {
    pending_ += TerminalLine(text, /*color=*/false) + "\n";
    changed_ = true;
  }
  void Refresh(Clock::time_point now) override {
    if (!changed_ || now < next_draw_ || !writer_.idle()) return;
    next_draw_ = now + kRedrawEvery;
    Draw();
  }
  bool Close() override {
    if (!writer_.idle()) return false;
    if (!std::exchange(closed_, true)) Draw();
    return writer_.idle();
  }

 private:
  static constexpr size_t kMaxPending = 64 << 10;

  /// Only when nothing waits, so that no part of a view is ever dropped. One write: back to the view's first row, clear
  /// below, the lines that came since, the view again. Lines wider than the terminal wrap above the view and harm
  /// nothing; the view's own rows never wrap.
  void Draw() {
    std::string text = drawn_rows_ > 0 ? "\x1b[" + std::to_string(drawn_rows_) + "A\r\x1b[J" : "";
    text += std::exchange(pending_, "");
    if (dropped_lines_ > 0) text += NotShown(std::exchange(dropped_lines_, 0)) + "\n";
    std::vector<std::string> rows = LiveRows(state_, TerminalColumns(STDOUT_FILENO), TerminalRows(STDOUT_FILENO));
    for (const std::string& row : rows) text += row + "\n";
    drawn_rows_ = rows.size();
    changed_ = false;
    writer_.Write(STDOUT_FILENO, text);
  }

  LiveState state_;
  TimeLeft left_;
  ScreenWriter writer_;
  std::string pending_;
  size_t drawn_rows_ = 0, dropped_lines_ = 0;
  bool changed_ = true, closed_ = false;
  Clock::time_point next_draw_{};
};

}  // namespace

std::unique_ptr<Screen> MakeScreen(const ScreenJob& job) {
  const char* terminal = std::getenv("TERM");
  bool moves = terminal && *terminal && std::string_view(terminal) != "dumb";
  if (moves && IsTerminal(STDOUT_FILENO)) return std::make_unique<LiveScreen>(job);
  return std::make_unique<LineScreen>(job);
}

bool ErrorsAreRead() {
  pollfd wanted{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&wanted, 1, 0) != 0;
}

}  // namespace ds
