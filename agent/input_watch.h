// Tells when standard input ends: with it ends whatever started this agent and holds the other end.
#pragma once

#include <functional>
#include <thread>

namespace ds {

class InputWatch {
 public:
  /// `on_end` is called once, on a thread of its own, when `fd` ends or fails. What comes over it is thrown away.
  InputWatch(int fd, std::function<void()> on_end);
  ~InputWatch();
  InputWatch(const InputWatch&) = delete;
  InputWatch& operator=(const InputWatch&) = delete;

 private:
  int stop_fd_;
  std::thread thread_;
};

}  // namespace ds
