#include "launcher/bootstrap/agent_errors.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr std::string_view kReason = "error: ds-agent: ";
constexpr size_t kLongestLine = 4096;  // what is longer comes in pieces
constexpr size_t kLongestReason = 2000;

void WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

AgentErrors::AgentErrors() : wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_fd_ < 0) throw SystemError("cannot make an event descriptor", errno);
  thread_ = std::thread([this] { Serve(); });
}

AgentErrors::~AgentErrors() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
    ::eventfd_write(wake_fd_, 1);
  }
  thread_.join();
  for (auto& [node, stream] : streams_) {
    Read(stream);
    if (stream.fd >= 0) ::close(stream.fd);
  }
  ::close(wake_fd_);
}

int AgentErrors::Open(uint32_t node) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for the agent", errno);
  ::fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  std::lock_guard lock(mutex_);
  Stream& stream = streams_[node];
  if (stream.fd >= 0) ::close(stream.fd);
  stream = {pipe[0], "", ""};
  ::eventfd_write(wake_fd_, 1);
  return pipe[1];
}

std::string AgentErrors::Reason(uint32_t node) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(node);
  if (found == streams_.end()) return "";
  Read(found->second);
  const std::string& last = found->second.last;
  return last.starts_with(kReason) ? Shown(std::string_view(last).substr(kReason.size()), kLongestReason) : "";
}

void AgentErrors::Read(Stream& stream) {
  char block[4096];
  while (stream.fd >= 0) {
    const ssize_t n = ::read(stream.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) stream.rest.append(block, static_cast<size_t>(n));
    size_t end;
    while ((end = stream.rest.find('\n')) != std::string::npos || stream.rest.size() > kLongestLine ||
           (n <= 0 && !stream.rest.empty())) {
      stream.last = stream.rest.substr(0, std::min(end, kLongestLine));
      stream.rest.erase(0, stream.last.size() + (end == stream.last.size() ? 1 : 0));
      WriteLine(stream.last);
    }
    if (n <= 0) ::close(std::exchange(stream.fd, -1));
  }
}

void AgentErrors::Serve() {
  for (;;) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}};
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      for (const auto& [node, stream] : streams_)
        if (stream.fd >= 0) fds.push_back({stream.fd, POLLIN, 0});
    }
    ::poll(fds.data(), fds.size(), -1);
    eventfd_t ignored;
    ::eventfd_read(wake_fd_, &ignored);
    std::lock_guard lock(mutex_);
    for (auto& [node, stream] : streams_) Read(stream);
  }
}

}  // namespace ds
