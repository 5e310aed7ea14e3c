#include "runtime/base/signal.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "runtime/base/error.h"

namespace ds {

std::string SignalName(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

SignalWatcher::SignalWatcher(const std::vector<int>& signals, std::function<void(int)> on_signal) {
  sigset_t set;
  ::sigemptyset(&set);
  for (int signal : signals) ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (signals_fd_ < 0 || stop_fd_ < 0) throw SystemError("cannot watch for signals", errno);
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    pollfd fds[2] = {{signals_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    for (;;) {
      if (::poll(fds, 2, -1) < 0 && errno != EINTR) return;
      if (fds[1].revents) return;
      signalfd_siginfo info{};
      if (fds[0].revents && ::read(signals_fd_, &info, sizeof info) == sizeof info) {
        on_signal(static_cast<int>(info.ssi_signo));
      }
    }
  });
}

SignalWatcher::~SignalWatcher() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(stop_fd_, &one, sizeof one);
  thread_.join();
  ::close(stop_fd_);
  ::close(signals_fd_);
}

}  // namespace ds
