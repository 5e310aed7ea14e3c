#include "launcher/bootstrap/ssh_login.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/bootstrap/ssh_failure.h"
#include "proto/attach.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// Of what the far side writes: its beginning says little, its end says why.
constexpr size_t kMostKept = 64 << 10;

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for ssh", errno);
  }
  ~Pipe() {
    for (const int fd : ends) {
      if (fd >= 0) ::close(fd);
    }
  }
  /// This process's end, which never blocks.
  int Take(int which) {
    ::fcntl(ends[which], F_SETFL, O_NONBLOCK);
    return std::exchange(ends[which], -1);
  }
};

void CloseFd(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

/// Appends what can be read; closes at the end.
void ReadFrom(int& fd, std::string& text) {
  char block[16 << 10];
  // A flood from one host must not starve the others: a few blocks a turn.
  for (int turns = 0; fd >= 0 && turns < 4; ++turns) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return CloseFd(fd);
    text.append(block, static_cast<size_t>(n));
  }
}

}  // namespace

void SshLogin::Start(const std::vector<std::string>& argv, State next, Clock::time_point now) {
  Close();
  Pipe in, out, error;
  SpawnOptions options;
  options.argv = argv;
  options.environment = InheritedEnvironment();
  options.stdin_fd = in.ends[0];
  options.stdout_fd = out.ends[1];
  options.stderr_fd = error.ends[1];
  options.new_session = true;  // out of reach of Ctrl-C, and no terminal to ask questions on
  options.parent_death_signal = SIGKILL;
  pid = Spawn(options);
  in_fd_ = in.Take(1);
  out_fd_ = out.Take(0);
  error_fd_ = error.Take(0);
  output.clear();
  errors.clear();
  passed_on_ = 0;
  end.reset();
  began = now;
  state = next;
}

void SshLogin::HandOver() {
  to_write_ = FrameBootstrap(secret);
  secret.clear();
  output.clear();
  Transfer();
}

void SshLogin::AddTo(std::vector<pollfd>& fds) const {
  if (out_fd_ >= 0) fds.push_back({out_fd_, POLLIN, 0});
  if (error_fd_ >= 0) fds.push_back({error_fd_, POLLIN, 0});
  if (in_fd_ >= 0 && !to_write_.empty()) fds.push_back({in_fd_, POLLOUT, 0});
}

void SshLogin::Transfer() {
  while (in_fd_ >= 0 && !to_write_.empty()) {
    const ssize_t n = ::write(in_fd_, to_write_.data(), to_write_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {  // ssh died: its end is told
      CloseInput();
      break;
    }
    to_write_.erase(0, static_cast<size_t>(n));
  }
  ReadFrom(out_fd_, output);
  ReadFrom(error_fd_, errors);
  if (output.size() > kMostKept) output.erase(0, output.size() - kMostKept / 2);
  if (errors.size() > kMostKept && state != State::attached) errors.erase(0, errors.size() - kMostKept / 2);
}

void SshLogin::PassErrorsOn() {
  const bool last = end && error_fd_ < 0;
  const size_t whole = last ? errors.size() : errors.rfind('\n') == std::string::npos ? 0 : errors.rfind('\n') + 1;
  if (whole > passed_on_) {
    std::string text = errors.substr(passed_on_, whole - passed_on_);
    if (text.back() != '\n') text += '\n';
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    passed_on_ = whole;
  }
  if (errors.size() <= kMostKept) return;
  const size_t cut = errors.size() - kMostKept / 2;
  errors.erase(0, cut);
  passed_on_ -= std::min(passed_on_, cut);
}

void SshLogin::CloseInput() {
  to_write_.clear();
  CloseFd(in_fd_);
}

void SshLogin::Close() {
  CloseInput();
  CloseFd(out_fd_);
  CloseFd(error_fd_);
  end.reset();
}

std::string SshLogin::AttemptsText() const {
  return attempts > 1 ? " (" + std::to_string(attempts) + " logins tried)" : "";
}

std::string SshLogin::Waiting() const {
  switch (state) {
    case State::waiting:
      return refusal.empty() ? "its login has not begun: there are many hosts before it" : refusal + AttemptsText();
    case State::connecting:
    case State::probing: {
      const std::string words = LastWords(output + "\n" + errors);
      return "ssh runs, and ds-agent has not answered: a slow login, or a start-up file of the shell there that waits "
             "for input" +
             (words.empty() ? "" : " (it wrote: " + words + ")");
    }
    case State::attached:
      return "ds-agent runs there and has not reached ds-launch: " +
             (errors.empty() ? std::string("a firewall, or the wrong network (--interface)?") : LastWords(errors));
    case State::over:
      break;
  }
  return "";
}

}  // namespace ds
