#include "runtime/base/captured.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "runtime/base/error.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxBytes = 1 << 20;

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for a command's output", errno);
  }
  ~Pipe() {
    CloseEnd(0);
    CloseEnd(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseEnd(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

int MillisecondsUntil(Clock::time_point until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 100));
}

/// Reads what is there; false at the end of the stream.
bool ReadSome(Pipe& pipe, std::string& text) {
  char block[4096];
  const ssize_t n = ::read(pipe.ends[0], block, sizeof block);
  if (n < 0) return errno == EINTR;
  if (n == 0) return false;
  text.append(block, std::min(static_cast<size_t>(n), kMaxBytes - std::min(kMaxBytes, text.size())));
  return true;
}

}  // namespace

std::optional<Captured> RunCaptured(const std::vector<std::string>& argv, double seconds) {
  Pipe out, error;
  SpawnOptions options;
  options.argv = argv;
  options.environment = InheritedEnvironment();
  options.stdout_fd = out.ends[1];
  options.stderr_fd = error.ends[1];
  options.new_session = true;
  options.parent_death_signal = SIGKILL;
  pid_t pid = -1;
  try {
    pid = Spawn(options);
  } catch (const Error&) {
    return std::nullopt;
  }
  out.CloseEnd(1);
  error.CloseEnd(1);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Captured captured;
  int status = 0;
  bool reaped = false;
  // Its children may hold its pipes after its end: what is there then is all that is waited for.
  while (!reaped && Clock::now() < until) {
    pollfd fds[2] = {{out.ends[0], POLLIN, 0}, {error.ends[0], POLLIN, 0}};
    const bool open = out.ends[0] >= 0 || error.ends[0] >= 0;
    if (open) ::poll(fds, 2, MillisecondsUntil(until));
    if (fds[0].revents && !ReadSome(out, captured.out)) out.CloseEnd(0);
    if (fds[1].revents && !ReadSome(error, captured.error)) error.CloseEnd(0);
    const bool closed = out.ends[0] < 0 && error.ends[0] < 0;
    const bool idle = !fds[0].revents && !fds[1].revents;
    if (closed || idle) {
      reaped = ::waitpid(pid, &status, WNOHANG) == pid;
      if (!reaped && closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (!reaped) {
    ::kill(-pid, SIGKILL);  // its session
    ::waitpid(pid, nullptr, 0);
    return std::nullopt;
  }
  captured.end = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
  return captured;
}

}  // namespace ds
