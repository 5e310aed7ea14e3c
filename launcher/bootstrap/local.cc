// Bootstrap `local`: agents are children of the launcher; loopback addresses are separate agents on this machine.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "launcher/bootstrap/agent_errors.h"
#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/this_machine.h"
#include "proto/attach.h"
#include "runtime/base/cgroup.h"
#include "runtime/base/error.h"
#include "runtime/base/socket.h"

namespace ds {
namespace {

void WriteSecret(int fd, const std::string& secret) {
  for (size_t done = 0; done < secret.size();) {
    ssize_t n = ::write(fd, secret.data() + done, secret.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // the agent died: its end is told
    done += static_cast<size_t>(n);
  }
}

class LocalBootstrap final : public Bootstrap {
 public:
  LocalBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end)
      : program_(settings.AgentProgram()),
        on_end_(std::move(on_end)),
        watcher_([this](pid_t pid, ProcessEnd end) { Ended(pid, end); }) {
    BecomeSubreaper();  // what a killed agent leaves behind becomes ours to end
    before_ = Descendants();
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~LocalBootstrap() override { EndAll(0); }

  std::string name() const override { return "local"; }

  std::string Refusal(const HostSlots& host) const override {
    if (IsThisMachine(host.host)) return "";
    return "host " + host.host +
           " is not this machine: bootstrap `local` reaches localhost, loopback addresses and this machine's own names "
           "and addresses only; other hosts are reached with --bootstrap ssh";
  }

  std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const override {
    std::vector<BootstrapCommand> commands;
    for (const HostSlots& host : hosts) commands.push_back({host.host, Argv()});
    return commands;
  }

  bool OnThisMachine() const override { return true; }

  void BringUp(const std::vector<AgentPlace>& agents) override {
    for (const AgentPlace& agent : agents) {
      try {
        BringUp(agent.node, agent.secret);
      } catch (const Error& error) {
        throw BringUpError{agent.node, error.what()};
      }
    }
  }

  bool SeesAgentsEnd() const override { return true; }

  void Kill(uint32_t node) override {
    std::lock_guard lock(mutex_);
    for (auto [pid, of] : agents_) {
      if (of == node) ::kill(pid, SIGKILL);
    }
  }

  void EndAll(double patience_seconds) override {
    {
      std::unique_lock lock(mutex_);
      ended_.wait_for(lock, std::chrono::duration<double>(patience_seconds), [&] { return agents_.empty(); });
      for (auto [pid, node] : agents_) ::kill(pid, SIGKILL);
      ended_.wait_for(lock, std::chrono::seconds(5), [&] { return agents_.empty(); });
      for (int fd : inputs_) ::close(fd);
      inputs_.clear();
    }
    KillDescendants(before_, 5);
    SocketFolder::RemoveLeftovers();
    ChildCgroup::RemoveLeftovers();  // of agents whose keepers were killed
  }

 private:
  std::vector<std::string> Argv() const { return {program_, "--tied"}; }

  void BringUp(uint32_t node, const std::string& secret) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for the agent", errno);
    SpawnOptions options;
    options.argv = Argv();
    options.environment = InheritedEnvironment();
    options.stdin_fd = pipe[0];
    options.new_session = true;
    options.parent_death_signal = SIGCONT;  // a stopped agent wakes, finds its launcher gone and ends its workers
    try {
      options.stderr_fd = errors_.Open(node);
      pid_t pid = Spawn(options);
      std::lock_guard lock(mutex_);  // Ended waits until the agent is known
      watcher_.Watch(pid);
      agents_[pid] = node;
    } catch (...) {
      ::close(pipe[0]);
      ::close(pipe[1]);
      if (options.stderr_fd >= 0) ::close(options.stderr_fd);
      throw;
    }
    ::close(options.stderr_fd);
    ::close(pipe[0]);
    WriteSecret(pipe[1], FrameBootstrap(secret));
    std::lock_guard lock(mutex_);
    inputs_.push_back(pipe[1]);
  }

  void Ended(pid_t pid, ProcessEnd end) {
    uint32_t node = 0;
    {
      std::lock_guard lock(mutex_);
      auto it = agents_.find(pid);
      if (it == agents_.end()) return;
      node = it->second;
      agents_.erase(it);
    }
    on_end_({node, end, errors_.Reason(node)});
    ended_.notify_all();
  }

  std::string program_;
  OnAgentEnd on_end_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<pid_t, uint32_t> agents_;
  /// The agents' standard inputs: they end with this process, however early it is killed, and the agents with them.
  std::vector<int> inputs_;
  std::vector<ProcessId> before_;  ///< children that this process had before: not ours to end
  AgentErrors errors_;
  ProcessWatcher watcher_;  // last: its thread uses the rest
};

}  // namespace

std::unique_ptr<Bootstrap> MakeLocalBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end) {
  return std::make_unique<LocalBootstrap>(settings, std::move(on_end));
}

}  // namespace ds
