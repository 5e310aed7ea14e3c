#include "agent/output_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
  WorkerKey worker;
  bool error_stream = false;
  int fd = -1;
  bool dropped = false;
  std::string partial;  ///< the line so far
  size_t searched = 0;  ///< of it: no newline up to here
};

/// Cuts whole lines off what was read of a stream.
std::vector<std::string> TakeLines(Stream& stream) {
  std::string& text = stream.partial;
  std::vector<std::string> lines;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find('\n', std::max(begin, stream.searched));
    const size_t length = (end == std::string::npos ? text.size() : end) - begin;
    if (length > kMaxLineBytes) {
      lines.push_back(text.substr(begin, kMaxLineBytes));
      begin += kMaxLineBytes;
    } else if (end != std::string::npos) {
      lines.push_back(text.substr(begin, length));
      begin = end + 1;
    } else {
      text.erase(0, begin);
      stream.searched = text.size();
      return lines;
    }
    stream.searched = begin;
  }
}

/// One worker's output, on the reader's thread.
struct Output {
  LineLimiter limiter;
  bool told = false;  ///< that lines are dropped
};

}  // namespace

struct OutputReader::Impl {
  OnLines on_lines;
  OnDropped on_dropped;
  OnEnd on_end;
  int wake_fd = -1;
  std::mutex mutex;  ///< of added, dropped and stop; `streams` is the thread's own
  std::vector<Stream> added;
  std::vector<WorkerKey> dropped;
  bool stop = false;
  std::vector<Stream> streams;
  std::map<WorkerKey, double> limits;   ///< as added; the mutex's
  std::map<WorkerKey, Output> outputs;  ///< the thread's own
  std::thread thread;

  bool TakeRequests() {
    std::lock_guard lock(mutex);
    for (Stream& stream : added) streams.push_back(std::move(stream));
    added.clear();
    for (const auto& [worker, limit] : limits) outputs.emplace(worker, Output{LineLimiter(limit)});
    limits.clear();
    for (Stream& stream : streams) {
      if (std::count(dropped.begin(), dropped.end(), stream.worker)) stream.dropped = true;
    }
    dropped.clear();
    return !stop;
  }

  void Run() {
    std::vector<char> block(64 << 10);
    while (TakeRequests()) {
      EndDropped();
      std::vector<pollfd> fds{{wake_fd, POLLIN, 0}};
      for (const Stream& stream : streams) fds.push_back({stream.fd, POLLIN, 0});
      const int ready = ::poll(fds.data(), fds.size(), MillisecondsToDue());
      TellDue();
      if (ready < 0) continue;
      if (fds[0].revents) {
        uint64_t count;
        [[maybe_unused]] ssize_t n = ::read(wake_fd, &count, sizeof count);
      }
      for (size_t i = 0; i + 1 < fds.size(); ++i) {
        if (fds[i + 1].revents) Read(streams[i], block);
      }
      EndClosed();
    }
    for (Stream& stream : streams) ::close(stream.fd);
  }

  void Read(Stream& stream, std::vector<char>& block) {
    ssize_t n = ::read(stream.fd, block.data(), block.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) {
      Close(stream);
      return;
    }
    stream.partial.append(block.data(), static_cast<size_t>(n));
    Pass(stream, TakeLines(stream));
  }

  void Close(Stream& stream) {
    if (!stream.partial.empty()) Pass(stream, {std::move(stream.partial)});
    ::close(stream.fd);
    stream.fd = -1;
  }

  void Pass(const Stream& stream, std::vector<std::string> lines) {
    if (lines.empty()) return;
    Output& output = outputs.at(stream.worker);
    HandOn(stream.worker, output.limiter.Admit(Clock::now(), stream.error_stream, std::move(lines)));
    if (output.limiter.dropped_in_all() > 0 && !std::exchange(output.told, true)) {
      on_dropped(stream.worker, output.limiter.dropped_in_all());
    }
  }

  void HandOn(WorkerKey worker, std::vector<OutputLine> lines) {
    if (!lines.empty()) on_lines(worker, std::move(lines));
  }

  int MillisecondsToDue() const {
    std::optional<Clock::time_point> due;
    for (const auto& [worker, output] : outputs) {
      if (auto at = output.limiter.due_at()) due = due ? std::min(*due, *at) : *at;
    }
    if (!due) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now()).count();
    return static_cast<int>(std::max<int64_t>(0, left));
  }

  void TellDue() {
    for (auto& [worker, output] : outputs) HandOn(worker, output.limiter.Due(Clock::now()));
  }

  void EndOutput(WorkerKey worker) {
    Output& output = outputs.at(worker);
    HandOn(worker, output.limiter.End());
    if (output.limiter.dropped_in_all() > 0) on_dropped(worker, output.limiter.dropped_in_all());
    outputs.erase(worker);
    on_end(worker);
  }

  void EndDropped() {
    for (Stream& stream : streams) {
      if (stream.dropped) Close(stream);
    }
    EndClosed();
  }

  void EndClosed() {
    std::vector<WorkerKey> ended;
    for (const Stream& stream : streams) {
      if (stream.fd < 0) ended.push_back(stream.worker);
    }
    std::erase_if(streams, [](const Stream& stream) { return stream.fd < 0; });
    for (size_t i = 0; i < ended.size(); ++i) {
      bool open = std::any_of(streams.begin(), streams.end(), [&](const Stream& s) { return s.worker == ended[i]; });
      bool again = std::count(ended.begin() + static_cast<long>(i) + 1, ended.end(), ended[i]) > 0;
      if (!open && !again) EndOutput(ended[i]);
    }
  }

  void Wake() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(wake_fd, &one, sizeof one);
  }
};

OutputReader::OutputReader(OnLines on_lines, OnDropped on_dropped, OnEnd on_end) : impl_(std::make_unique<Impl>()) {
  impl_->on_lines = std::move(on_lines);
  impl_->on_dropped = std::move(on_dropped);
  impl_->on_end = std::move(on_end);
  impl_->wake_fd = ::eventfd(0, EFD_CLOEXEC);
  if (impl_->wake_fd < 0) throw SystemError("cannot read the workers' output", errno);
  impl_->thread = std::thread([this] { impl_->Run(); });
}

OutputReader::~OutputReader() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->Wake();
  impl_->thread.join();
  ::close(impl_->wake_fd);
}

void OutputReader::Add(WorkerKey worker, int out_fd, int error_fd, double lines_per_second) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->limits.emplace(worker, lines_per_second);
    impl_->added.push_back({worker, false, out_fd, false, "", 0});
    impl_->added.push_back({worker, true, error_fd, false, "", 0});
  }
  impl_->Wake();
}

void OutputReader::Drop(WorkerKey worker) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->dropped.push_back(worker);
  }
  impl_->Wake();
}

}  // namespace ds
