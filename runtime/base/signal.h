// Signals as events: blocked in every thread, taken by one thread that calls back.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace ds {

/// "SIGKILL" for 9; "signal 77" where there is no name.
std::string SignalName(int signal);

/// While it lives, each of `signals` that reaches the process is handed to `on_signal` (on a thread of its own) instead
/// of having its effect. Make it in main before any other thread, so that all threads inherit the block.
class SignalWatcher {
 public:
  SignalWatcher(const std::vector<int>& signals, std::function<void(int)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  int signals_fd_ = -1, stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace ds
