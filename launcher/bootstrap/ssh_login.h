// One host's ssh: its process, its three streams, and how far it has come. Owned by the thread of bootstrap `ssh`.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/process.h"
#include "runtime/job/hostfile.h"

namespace ds {

struct SshLogin {
  using Clock = std::chrono::steady_clock;
  enum class State {
    waiting,     ///< for its turn, or after it was turned away
    connecting,  ///< ssh runs; no agent has answered
    attached,    ///< the agent answered
    probing,     ///< ssh runs to ask for the agent's version
    over,
  };

  uint32_t node = 0;
  HostSlots host;
  std::string secret;
  State state = State::waiting;
  pid_t pid = -1;  ///< of the running ssh; -1: none
  Clock::time_point began{}, not_before{}, ended_at{};
  std::optional<ProcessEnd> end;  ///< of the process, whose streams may hold more
  int attempts = 0;
  std::string output, errors;  ///< of this attempt; bounded: the middle is left out
  std::string refusal;         ///< why the last attempt failed
  bool unwanted = false;       ///< its end is wanted

  SshLogin() = default;
  SshLogin(const SshLogin&) = delete;
  SshLogin& operator=(const SshLogin&) = delete;
  ~SshLogin() { Close(); }

  /// Starts `argv` from this thread, whose end it does not survive. Throws Error.
  void Start(const std::vector<std::string>& argv, State next, Clock::time_point now);
  /// The secret goes to the agent as its standard input takes it.
  void HandOver();
  void AddTo(std::vector<pollfd>& fds) const;
  /// Reads and writes what is there to be read and written, without waiting.
  void Transfer();
  /// Whole lines of the agent's log go to this process's standard error; the last ones are kept in `errors`.
  void PassErrorsOn();
  bool OutputsEnded() const { return out_fd_ < 0 && error_fd_ < 0; }
  void CloseInput();
  void Close();

  /// What an agent that has not joined waits for; for messages.
  std::string Waiting() const;
  std::string AttemptsText() const;

 private:
  int in_fd_ = -1, out_fd_ = -1, error_fd_ = -1;
  std::string to_write_;
  size_t passed_on_ = 0;  ///< bytes of `errors`
};

}  // namespace ds
