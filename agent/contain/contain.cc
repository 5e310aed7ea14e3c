#include "agent/contain/contain.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "agent/contain/namespace.h"
#include "runtime/base/cgroup.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/socket.h"

namespace ds {
namespace {

constexpr int kForwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT};
constexpr double kEndSeconds = 5;  // a killed process ends within a scheduling quantum, but where the kernel waits

Containment current;

void WriteAll(int fd, const std::string& text) { [[maybe_unused]] ssize_t n = ::write(fd, text.data(), text.size()); }

/// Everything up to end of file; short texts.
std::string ReadAll(int fd) {
  std::string text;
  char block[256];
  for (ssize_t n; (n = ::read(fd, block, sizeof block)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    text.append(block, static_cast<size_t>(n));
  }
  return text;
}

/// Two pipes: the child tells whether it is contained, the keeper then lets it go, with its number.
struct Talk {
  int told[2] = {-1, -1}, go[2] = {-1, -1};
  Talk() {
    if (::pipe2(told, O_CLOEXEC) != 0 || ::pipe2(go, O_CLOEXEC) != 0)
      throw SystemError("cannot make a pipe between the agent and its keeper", errno);
  }
  void BeChild() { Close(told[0]), Close(go[1]); }
  void BeKeeper() { Close(told[1]), Close(go[0]); }
  static void Close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  ~Talk() {
    for (int* fd : {&told[0], &told[1], &go[0], &go[1]}) Close(*fd);
  }
};

/// The child's part: enters what contains it. True: it may go on as the agent.
bool BeAgent(const std::string& level, const ChildCgroup* group, Talk& talk, const sigset_t& signals) {
  talk.BeChild();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string why;
  if (level == "namespace") why = EnterNamespace();
  if (group && !group->Enter())
    why = "processes cannot be moved into " + group->path().string() + ": " + std::strerror(errno);
  WriteAll(talk.told[1], why);
  Talk::Close(talk.told[1]);
  const std::string number =
      ReadAll(talk.go[0]);  // nothing where the keeper died before the death signal was asked for
  if (!why.empty() || number.empty()) ::_exit(1);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  current.level = level;
  current.outer_pid = static_cast<pid_t>(std::stol(number));
  return true;
}

/// Ends this process as `status` says its child did, so that whoever started it sees what happened to the agent.
[[noreturn]] void EndAs(int status, bool was_init) {
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  // Process 1 of a namespace cannot end by a signal of its own: its exit code tells which it would have been.
  if (was_init && WIFEXITED(status) && WEXITSTATUS(status) > 128) signal = WEXITSTATUS(status) - 128;
  if (signal > 0 && signal < NSIG) {
    ::prctl(PR_SET_DUMPABLE, 0);  // the agent's core is enough
    ::signal(signal, SIG_DFL);
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, signal);
    ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
    ::raise(signal);
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + signal);
}

/// The keeper's life: passes signals on until the agent ends, then ends what it left, and itself.
[[noreturn]] void Keep(pid_t agent, const std::string& level, std::unique_ptr<ChildCgroup> group,
                       const sigset_t& waited) {
  ::prctl(PR_SET_NAME, "ds-agent-keeper");
  int status = 0;
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&waited, &info);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      ::kill(agent, signal);
      continue;
    }
    bool ended = false;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {  // orphans that ended by themselves too
      if (pid == agent) {
        ended = true;
        break;
      }
    }
    if (ended) break;
  }
  if (group) group->Kill(kEndSeconds);
  KillDescendants({}, kEndSeconds);
  SocketFolder::RemoveLeftovers();
  group.reset();
  EndAs(status, level == "namespace");
}

/// Tries one level; returns in the agent alone. Otherwise what the node does not allow, with nothing left of the try.
std::string TryLevel(const std::string& level, const sigset_t& waited, const sigset_t& before,
                     const std::function<void()>& in_keeper) {
  std::unique_ptr<ChildCgroup> group;
  if (level == "cgroup") {
    try {
      group = std::make_unique<ChildCgroup>();
    } catch (const Error& error) {
      return error.what();
    }
  }
  if (level == "namespace") {
    // In a child first: once a namespace has begun, this process can have no child outside of it.
    if (std::string why = TryNamespace(); !why.empty()) return why;
    if (std::string why = BeginNamespace(); !why.empty()) throw RuntimeError("the agent cannot be contained: " + why);
  }
  Talk talk;
  const pid_t agent = ::fork();
  if (agent < 0) throw SystemError("cannot start the agent under its keeper", errno);
  if (agent == 0 && BeAgent(level, group.get(), talk, before)) return "";
  talk.BeKeeper();
  const std::string why = ReadAll(talk.told[0]);
  if (why.empty()) {
    WriteAll(talk.go[1], std::to_string(agent));
    Talk::Close(talk.go[1]);
    Talk::Close(talk.told[0]);
    ::close(STDIN_FILENO);  // the agent's alone: its end is for others to see
    if (in_keeper) in_keeper();
    Keep(agent, level, std::move(group), waited);
  }
  Talk::Close(talk.go[1]);
  ::waitpid(agent, nullptr, 0);
  if (level == "namespace") throw RuntimeError("the agent cannot be contained: " + why);
  return why;
}

/// Whether the caller is the keeper's child now.
bool IsAgent() { return !current.level.empty(); }

}  // namespace

void Contain(const std::string& mode, const std::function<void()>& in_keeper) {
  BecomeSubreaper();
  ChildCgroup::RemoveLeftovers();
  sigset_t waited, before;
  ::sigemptyset(&waited);
  ::sigaddset(&waited, SIGCHLD);
  for (int signal : kForwarded) ::sigaddset(&waited, signal);
  ::sigprocmask(SIG_BLOCK, &waited, &before);
  std::string refused, cgroup;
  std::vector<std::string> levels{mode};
  if (mode == "auto" || mode.empty()) levels = {"cgroup"};
  if (levels[0] != "process") levels.push_back("process");
  for (const std::string& level : levels) {
    const std::string why = TryLevel(level, waited, before, in_keeper);
    if (IsAgent()) {
      current.refused = refused;
      current.cgroup_refused = cgroup;
      return;
    }
    refused = level + ": " + why;
    if (level == "cgroup") cgroup = why;
  }
  throw RuntimeError("the agent cannot be kept: " + refused);
}

const Containment& CurrentContainment() { return current; }

namespace {

/// In a child that ends at once. Empty, or what the node does not allow.
std::string TryCgroup() {
  try {
    ChildCgroup group;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(group.Enter() ? 0 : errno);
    int status = 0;
    if (child > 0) ::waitpid(child, &status, 0);
    if (child > 0 && status == 0) return "";
    return "processes cannot be moved into " + group.path().string() + ": " +
           std::strerror(child < 0 ? EAGAIN : WEXITSTATUS(status));
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

ContainmentFacts FindContainment(bool all) {
  ContainmentFacts facts;
  const auto add = [&](const std::string& level, const std::string& why) {
    if (why.empty()) return facts.possible.push_back(level);
    facts.refused += (facts.refused.empty() ? "" : "; ") + level + ": " + why;
  };
  if (current.level == "namespace")
    add("namespace", "");
  else if (all)
    add("namespace", TryNamespace());
  if (current.level == "cgroup" || !current.cgroup_refused.empty())
    add("cgroup", current.cgroup_refused);
  else if (all)
    add("cgroup", TryCgroup());
  facts.possible.push_back("process");
  return facts;
}

}  // namespace ds
