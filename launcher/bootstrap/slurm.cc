// Bootstrap `slurm`: inside an allocation, one srun starts one agent on each node. All of them are handed the same
// bytes over srun's standard input; each finds its own by the name of its node (SLURMD_NODENAME), so that the order in
// which SLURM places tasks does not matter.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/slurm_allocation.h"
#include "launcher/bootstrap/slurm_environment.h"
#include "launcher/bootstrap/slurm_report.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/socket.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

/// After srun ended: how long what it printed last may take to be read, where a child of it holds the pipe open.
constexpr int kDrainMilliseconds = 200;
/// How long srun may take to kill a step whose agents do not end by themselves (it waits for the nodes' answers).
constexpr double kAbortSeconds = 10;
/// Once every agent has ended: until srun has, too.
constexpr double kSrunEndSeconds = 2;
/// Where only nodes are left that were given up: what SIGTERM gives srun, before SIGKILL.
constexpr double kDeadNodeSeconds = 1;
constexpr size_t kMaxLine = 64 << 10;
/// Of an agent on a node that SLURM has given up: as srun itself counts such tasks.
constexpr ProcessEnd kUnknownEnd{1, 0};

class SlurmBootstrap final : public Bootstrap {
 public:
  SlurmBootstrap(BootstrapSettings settings, OnAgentEnd on_end)
      : settings_(std::move(settings)), on_end_(std::move(on_end)), allocation_(ThisSlurmAllocation()) {
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~SlurmBootstrap() override { EndAll(0); }

  std::string name() const override { return "slurm"; }
  std::string Refusal(const HostSlots& host) const override { return RefusalOf(allocation_, host); }

  std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const override {
    std::vector<std::string> names;
    for (const HostSlots& host : hosts) names.push_back(NodeName(host.host));
    return {{Join(names, ","), Argv(names)}};
  }

  /// On a single node's batch script nothing needs to leave the machine.
  bool OnThisMachine() const override { return allocation_.hosts.size() == 1 && !allocation_.this_node.empty(); }

  void BringUp(const std::vector<AgentPlace>& agents) override {
    pb::Bootstraps all;
    std::vector<std::string> names;
    for (const AgentPlace& agent : agents) {
      if (!all.add_agents()->ParseFromString(agent.secret)) throw RuntimeError("an agent's secret is no Bootstrap");
      names.push_back(NodeName(agent.host.host));
      node_of_[CanonicalHost(agent.host.host)] = agent.node;
      waiting_.insert(agent.node);
    }
    secret_ = all.SerializeAsString();
    try {
      Start(Argv(names));
    } catch (const Error& error) {
      throw BringUpError{agents.front().node,
                         std::string(error.what()) + "; bootstrap slurm needs SLURM's srun on the launcher's node"};
    }
  }

  bool SeesAgentsEnd() const override { return true; }

  /// SLURM ends a step as a whole. An agent that was given up ends by itself: its connection is closed, and its lease
  /// runs out. Its end is not waited for.
  void Kill(uint32_t node) override {
    {
      std::lock_guard lock(mutex_);
      given_up_.insert(node);
    }
    ended_.notify_all();
  }

  std::string Waiting(uint32_t) const override {
    std::lock_guard lock(mutex_);
    return noise_.Text();
  }

  void EndAll(double patience_seconds) override {
    if (!thread_.joinable()) return;
    if (!AwaitAgents(patience_seconds) || !AwaitEnd(kSrunEndSeconds)) {
      ::kill(srun_, SIGTERM);  // srun kills the step on every node, then ends
      const bool all_known = AwaitAgents(0);
      // A node that died answers nobody: srun would wait for it. What it leaves to SLURM's controller is all the same.
      if (!AwaitEnd(all_known ? kDeadNodeSeconds : kAbortSeconds) && !all_known) {
        LogWarning("srun does not end: killing it. SLURM ends what is left of its step with the allocation (" +
                   allocation_.job_id + ")");
      }
      ::kill(srun_, SIGKILL);
      AwaitEnd(5);
    }
    Wake();
    thread_.join();
    ::close(pidfd_);
    ::close(wake_);
    SocketFolder::RemoveLeftovers();  // of agents that were killed here
  }

 private:
  std::vector<std::string> Argv(const std::vector<std::string>& names) const {
    const std::string count = std::to_string(names.size());
    return {"srun",
            "--job-name=ds-agent",
            "--nodes=" + count,
            "--ntasks=" + count,
            "--ntasks-per-node=1",
            "--nodelist=" + (names.size() == allocation_.hosts.size() ? allocation_.nodelist : Join(names, ",")),
            "--overlap",             // beside the batch step and whatever else runs in the allocation
            "--mem=0",               // all that the allocation has on the node
            "--cpu-bind=none",       // agents place workers themselves
            "--kill-on-bad-exit=0",  // ds-launch decides what the end of one agent means for the others
            "--no-kill",             // and so for a node's
            "--wait=0",
            "--mpi=none",
            "--export=ALL",
            "--input=all",
            "--label",
            "--verbose",  // tells when a task has completed
            settings_.AgentProgram(),
            "--host-from",
            "SLURMD_NODENAME",
            "--leave-signals"};
  }

  /// A host as SLURM writes it: hostfiles may write it in other cases.
  std::string NodeName(const std::string& host) const {
    for (const HostSlots& node : allocation_.hosts) {
      if (CanonicalHost(node.host) == CanonicalHost(host)) return node.host;
    }
    return host;
  }

  void Start(const std::vector<std::string>& argv) {
    std::array<int, 2> in{-1, -1}, out{-1, -1};
    const auto close_all = [&] {
      for (const int fd : {in[0], in[1], out[0], out[1]})
        if (fd >= 0) ::close(fd);
    };
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) {
      const int error = errno;
      close_all();
      throw SystemError("cannot make a pipe for srun", error);
    }
    SpawnOptions options;
    options.argv = argv;
    options.environment = SrunEnvironment(InheritedEnvironment());
    options.stdin_fd = in[0];
    options.stdout_fd = options.stderr_fd = out[1];
    options.new_session = true;             // the terminal's Ctrl-C is ds-launch's
    options.parent_death_signal = SIGTERM;  // ds-launch killed: srun kills the step
    try {
      srun_ = Spawn(options);
      pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, srun_, 0));
      wake_ = ::eventfd(0, EFD_CLOEXEC);
      if (pidfd_ < 0 || wake_ < 0) throw SystemError("cannot watch srun", errno);
    } catch (...) {
      close_all();
      throw;
    }
    ::close(in[0]);
    ::close(out[1]);
    ::fcntl(in[1], F_SETFL, O_NONBLOCK);
    ::fcntl(out[0], F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this, in_fd = in[1], out_fd = out[0]] { Serve(in_fd, out_fd); });
  }

  // ---- the thread that feeds srun, reads it and waits for its end

  void Serve(int in, int out) {
    size_t sent = 0;
    bool ended = false;
    Clock::time_point drain_until;
    for (;;) {
      if (in >= 0 && sent == secret_.size()) ::close(std::exchange(in, -1));
      pollfd fds[4] = {{in, POLLOUT, 0}, {out, POLLIN, 0}, {ended ? -1 : pidfd_, POLLIN, 0}, {wake_, POLLIN, 0}};
      ::poll(fds, 4, ended ? 10 : -1);
      if (fds[0].revents && !Feed(in, sent)) ::close(std::exchange(in, -1));
      if (fds[1].revents && !Read(out)) ::close(std::exchange(out, -1));
      if (fds[2].revents) {
        ended = true;
        drain_until = Clock::now() + std::chrono::milliseconds(kDrainMilliseconds);
      }
      if (ended && (out < 0 || Clock::now() >= drain_until)) break;
    }
    if (in >= 0) ::close(in);
    if (out >= 0) ::close(out);
    Ended();
  }

  /// False where nobody reads any more.
  bool Feed(int in, size_t& sent) {
    const ssize_t n = ::write(in, secret_.data() + sent, secret_.size() - sent);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    sent += static_cast<size_t>(n);
    return true;
  }

  /// False at the end.
  bool Read(int out) {
    char block[4096];
    const ssize_t n = ::read(out, block, sizeof block);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) {
      if (!partial_.empty()) Line(std::exchange(partial_, ""));
      return false;
    }
    partial_.append(block, static_cast<size_t>(n));
    for (;;) {
      const size_t end = partial_.find('\n');
      if (end == std::string::npos && partial_.size() < kMaxLine) return true;
      const size_t length = std::min(end, kMaxLine);
      Line(partial_.substr(0, length));
      partial_.erase(0, length + (length == end ? 1 : 0));
    }
  }

  void Line(std::string line) {
    // "3: text" is task 3's; srun's own lines have no label.
    std::string label;
    if (const size_t colon = line.find(": ");
        colon != std::string::npos && colon > 0 && line.find_first_not_of(" 0123456789") == colon) {
      label = line.substr(0, colon);
      line.erase(0, colon + 2);
    }
    std::vector<AgentEnded> ends;
    {
      std::lock_guard lock(mutex_);
      if (!noise_.Add(line)) {
        LogInfo(line);  // an agent's, which has its level within
        return;
      }
      if (const auto tasks = ReadTasksEnded(line)) {
        for (const std::string& node : tasks->nodes) Take(node, tasks->end, ends);
      }
      for (const std::string& node : ReadNodesFailed(line)) Take(node, kUnknownEnd, ends);
    }
    for (AgentEnded& end : ends) on_end_(std::move(end));
    if (!ends.empty()) ended_.notify_all();
  }

  /// The end of a node's agent, told once.
  void Take(const std::string& name, ProcessEnd end, std::vector<AgentEnded>& ends) {
    const auto found = node_of_.find(CanonicalHost(name));
    if (found == node_of_.end() || waiting_.erase(found->second) == 0) return;
    ends.push_back({found->second, end, noise_.Text()});
  }

  void Ended() {
    int status = 0;
    ProcessEnd end{1, 0};
    if (::waitpid(srun_, &status, 0) == srun_) {
      end = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
    }
    std::set<uint32_t> rest;
    std::string text;
    {
      std::lock_guard lock(mutex_);
      rest.swap(waiting_);
      text = "srun ended (" + EndText(end) + ")";
      if (const std::string said = noise_.Text(); !said.empty()) text += ": " + said;
    }
    for (const uint32_t node : rest) on_end_({node, end, std::exchange(text, "")});  // once is enough
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_all();
  }

  /// Until every agent has ended that was not given up.
  bool AwaitAgents(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
      return over_ || std::includes(given_up_.begin(), given_up_.end(), waiting_.begin(), waiting_.end());
    });
  }

  bool AwaitEnd(double seconds) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; });
  }

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  }

  const BootstrapSettings settings_;
  OnAgentEnd on_end_;
  const SlurmAllocation allocation_;
  std::map<std::string, uint32_t> node_of_;  ///< by CanonicalHost
  std::string secret_, partial_;
  pid_t srun_ = -1;
  int pidfd_ = -1, wake_ = -1;
  mutable std::mutex mutex_;  ///< of the rest
  std::condition_variable ended_;
  std::set<uint32_t> waiting_;  ///< nodes whose agent's end was not told yet
  SlurmNoise noise_;
  std::set<uint32_t> given_up_;
  bool over_ = false;
  std::thread thread_;  // last: uses the rest
};

}  // namespace

std::unique_ptr<Bootstrap> MakeSlurmBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end) {
  return std::make_unique<SlurmBootstrap>(settings, std::move(on_end));
}

}  // namespace ds
