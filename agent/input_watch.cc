#include "agent/input_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/error.h"

namespace ds {

InputWatch::InputWatch(int fd, std::function<void()> on_end) : stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
  if (stop_fd_ < 0) throw SystemError("cannot make an event descriptor", errno);
  thread_ = std::thread([this, fd, on_end = std::move(on_end)] {
    for (;;) {
      pollfd fds[2] = {{fd, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
      if (::poll(fds, 2, -1) < 0) continue;
      if (fds[1].revents) return;
      char block[512];
      const ssize_t n = ::read(fd, block, sizeof block);
      if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) continue;
      return on_end();
    }
  });
}

InputWatch::~InputWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_fd_, &one, sizeof one);
  thread_.join();
  ::close(stop_fd_);
}

}  // namespace ds
