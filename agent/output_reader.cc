#include "agent/output_reader.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace ds {
namespace {

struct Stream {
  WorkerKey worker;
  bool error_stream = false;
  int fd = -1;
  bool dropped = false;
  std::string partial;  ///< the line so far
};

/// Cuts whole lines off `text`.
std::vector<std::string> TakeLines(std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (;;) {
    size_t end = text.find('\n', begin);
    size_t length = (end == std::string::npos ? text.size() : end) - begin;
    if (length > kMaxLineBytes) {
      lines.push_back(text.substr(begin, kMaxLineBytes));
      begin += kMaxLineBytes;
    } else if (end != std::string::npos) {
      lines.push_back(text.substr(begin, length));
      begin = end + 1;
    } else {
      text.erase(0, begin);
      return lines;
    }
  }
}

}  // namespace

struct OutputReader::Impl {
  OnLines on_lines;
  OnEnd on_end;
  int wake_fd = -1;
  std::mutex mutex;  ///< of added, dropped and stop; `streams` is the thread's own
  std::vector<Stream> added;
  std::vector<WorkerKey> dropped;
  bool stop = false;
  std::vector<Stream> streams;
  std::thread thread;

  bool TakeRequests() {
    std::lock_guard lock(mutex);
    for (Stream& stream : added) streams.push_back(std::move(stream));
    added.clear();
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
      if (::poll(fds.data(), fds.size(), -1) < 0) continue;
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
    std::vector<std::string> lines = TakeLines(stream.partial);
    if (!lines.empty()) on_lines(stream.worker, stream.error_stream, std::move(lines));
  }

  void Close(Stream& stream) {
    if (!stream.partial.empty()) on_lines(stream.worker, stream.error_stream, {std::move(stream.partial)});
    ::close(stream.fd);
    stream.fd = -1;
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
      if (!open && !again) on_end(ended[i]);
    }
  }

  void Wake() {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(wake_fd, &one, sizeof one);
  }
};

OutputReader::OutputReader(OnLines on_lines, OnEnd on_end) : impl_(std::make_unique<Impl>()) {
  impl_->on_lines = std::move(on_lines);
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

void OutputReader::Add(WorkerKey worker, int out_fd, int error_fd) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->added.push_back({worker, false, out_fd, false, ""});
    impl_->added.push_back({worker, true, error_fd, false, ""});
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
