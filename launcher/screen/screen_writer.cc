#include "launcher/screen/screen_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace ds {
namespace {

constexpr size_t kLongestWrite = 64 << 10;

void Put(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

struct ScreenWriter::State {
  struct Piece {
    int fd;
    std::string text;
  };
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Piece> waiting;
  size_t bytes = 0;  ///< of `waiting` and of what is being written
  size_t most_bytes = 0, dropped_lines = 0;
  bool full = false, stop = false;

  void Append(int fd, std::string_view text) {
    const bool joins = !waiting.empty() && waiting.back().fd == fd && waiting.back().text.size() < kLongestWrite;
    if (!joins) waiting.push_back({fd, {}});
    waiting.back().text += text;
    bytes += text.size();
  }

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stop || !waiting.empty(); });
      if (stop) return;
      const Piece piece = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      Put(piece.fd, piece.text);
      lock.lock();
      bytes -= piece.text.size();
      if (full && bytes <= most_bytes / 2) {
        full = false;
        Append(piece.fd, NotShown(std::exchange(dropped_lines, 0)) + "\n");
      }
    }
  }
};

ScreenWriter::ScreenWriter(size_t most_bytes) : state_(std::make_shared<State>()) {
  state_->most_bytes = most_bytes;
  std::thread([state = state_] { state->Run(); }).detach();
}

ScreenWriter::~ScreenWriter() {
  std::lock_guard lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
}

void ScreenWriter::Write(int fd, std::string_view text) {
  std::lock_guard lock(state_->mutex);
  if (state_->full || (state_->bytes > 0 && state_->bytes + text.size() > state_->most_bytes)) {
    state_->full = true;
    state_->dropped_lines += static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    return;
  }
  state_->Append(fd, text);
  state_->changed.notify_all();
}

bool ScreenWriter::idle() const {
  std::lock_guard lock(state_->mutex);
  return state_->bytes == 0;
}

std::string NotShown(size_t lines) {
  return "[ds-launch: " + std::to_string(lines) + (lines == 1 ? " line" : " lines") +
         " not shown, since nobody reads the screen; logs have them]";
}

}  // namespace ds
