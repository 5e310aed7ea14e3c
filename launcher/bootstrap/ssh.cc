// Bootstrap `ssh`: one OpenSSH client a host, which starts ds-agent there, hands it its secret over standard input and
// stays for as long as the agent does. All clients are served by one thread, which also starts them: they end when the
// launcher does, and with them their agents' standard input, which ends the agents.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/login_pace.h"
#include "launcher/bootstrap/ssh_command.h"
#include "launcher/bootstrap/ssh_failure.h"
#include "launcher/bootstrap/ssh_login.h"
#include "proto/attach.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/input_file.h"
#include "runtime/base/log.h"
#include "runtime/base/process.h"
#include "runtime/base/socket.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewAttempts = 3;
constexpr auto kProbeTime = std::chrono::seconds(10);      // for `ds-agent --version`
constexpr auto kAfterInputEnds = std::chrono::seconds(2);  // an agent whose standard input ended takes less
constexpr auto kDrainTime = std::chrono::milliseconds(200);

Clock::duration Duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class SshBootstrap final : public Bootstrap {
 public:
  SshBootstrap(BootstrapSettings settings, OnAgentEnd on_end)
      : settings_(std::move(settings)), on_end_(std::move(on_end)), watcher_([this](pid_t pid, ProcessEnd end) {
          std::lock_guard lock(mutex_);
          ended_processes_.push_back({pid, end});
          Wake();
        }) {
    // ssh would wait for what never ends, and take a folder for an empty file.
    const std::string& config = settings_.ssh_config;
    if (const std::string why = config == "auto" ? "" : WhyNoFile(config); !why.empty())
      throw UsageError("--ssh-config (launch.ssh_config): " + Shown(config, 400) + " " + why +
                       "; name a file that ssh can read");
    BecomeSubreaper();  // what an ssh leaves behind (a ProxyCommand) becomes ours to end
    before_ = Descendants();
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~SshBootstrap() override {
    EndAll(0);
    std::lock_guard lock(mutex_);  // the watcher's thread may still call
    if (wake_fd_ >= 0) ::close(std::exchange(wake_fd_, -1));
  }

  std::string name() const override { return "ssh"; }

  std::string Refusal(const HostSlots& host) const override {
    if (!host.host.empty() && host.host[0] != '-') return "";
    return "host `" + host.host + "` begins with `-`: ssh could take it for an option";
  }

  std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const override {
    std::vector<BootstrapCommand> commands;
    for (const HostSlots& host : hosts) commands.push_back({host.host, SshCommand(settings_, host, kAttached)});
    return commands;
  }

  /// A name that only ssh's configuration knows (`Host w1`, `HostName 10.0.0.1`).
  std::string NetworkName(const HostSlots& host) const override { return SshHostName(settings_, host); }

  bool OnThisMachine() const override { return false; }

  void BringUp(const std::vector<AgentPlace>& agents) override {
    wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd_ < 0) throw BringUpError{0, SystemError("cannot make an event descriptor", errno).what()};
    for (const AgentPlace& agent : agents) {
      logins_.emplace_back();
      logins_.back().node = agent.node;
      logins_.back().host = agent.host;
      logins_.back().secret = agent.secret;
    }
    deadline_ = Clock::now() + Duration(settings_.join_seconds);
    thread_ = std::thread([this] { Run(); });
  }

  std::string Waiting(uint32_t node) const override {
    std::lock_guard lock(mutex_);
    for (const SshLogin& login : logins_) {
      if (login.node == node) return login.Waiting();
    }
    return "";
  }

  bool SeesAgentsEnd() const override { return true; }

  void Kill(uint32_t node) override {
    std::lock_guard lock(mutex_);
    for (SshLogin& login : logins_) {
      if (login.node != node) continue;
      login.unwanted = true;
      if (login.pid > 0) ::kill(login.pid, SIGKILL);
    }
    Wake();
  }

  void EndAll(double patience_seconds) override {
    if (thread_.joinable()) {
      {
        std::unique_lock lock(mutex_);
        const auto none = [&] { return AllEnded(); };
        ending_ = true;  // nothing new is begun
        Wake();
        all_ended_.wait_for(lock, std::chrono::duration<double>(patience_seconds), none);
        inputs_end_ = true;  // agents that are left end by this
        Wake();
        all_ended_.wait_for(lock, kAfterInputEnds, none);
        for (SshLogin& login : logins_) {
          if (login.pid > 0) ::kill(login.pid, SIGKILL);
        }
        all_ended_.wait_for(lock, std::chrono::seconds(5), none);
        stop_ = true;
        Wake();
      }
      thread_.join();
    }
    KillDescendants(before_, 5);
    SocketFolder::RemoveLeftovers();  // of agents that were killed on this machine; elsewhere the next agent does it
  }

 private:
  static constexpr const char* kAttached = "--attached";

  struct EndedProcess {
    pid_t pid;
    ProcessEnd end;
  };

  void Wake() const {
    const uint64_t one = 1;
    if (wake_fd_ >= 0) [[maybe_unused]]
      ssize_t n = ::write(wake_fd_, &one, sizeof one);
  }

  bool AllEnded() const {
    return std::all_of(logins_.begin(), logins_.end(),
                       [](const SshLogin& login) { return login.state == SshLogin::State::over; });
  }

  // ---- the thread

  void Run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const Clock::time_point now = Clock::now();
      for (EndedProcess& ended : std::exchange(ended_processes_, {})) NoteEnd(ended, now);
      for (SshLogin& login : logins_) Step(login, now);
      if (AllEnded()) all_ended_.notify_all();
      std::vector<pollfd> fds{{wake_fd_, POLLIN, 0}};
      for (SshLogin& login : logins_) login.AddTo(fds);
      const int timeout =
          static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(NextDue(now) - now).count() + 1);
      lock.unlock();
      ::poll(fds.data(), fds.size(), std::clamp(timeout, 1, 1000));
      lock.lock();
      uint64_t count;
      [[maybe_unused]] ssize_t n = ::read(wake_fd_, &count, sizeof count);
      for (SshLogin& login : logins_) login.Transfer();
    }
  }

  Clock::time_point NextDue(Clock::time_point now) const {
    Clock::time_point due = now + std::chrono::seconds(1);
    for (const SshLogin& login : logins_) {
      if (login.state == SshLogin::State::waiting && (login.not_before > now || pace_.MayStart()))
        due = std::min(due, login.not_before);
      if (login.end) due = std::min(due, login.ended_at + kDrainTime);
      if (login.state == SshLogin::State::probing) due = std::min(due, login.began + kProbeTime);
    }
    return due;
  }

  void NoteEnd(const EndedProcess& ended, Clock::time_point now) {
    for (SshLogin& login : logins_) {
      if (login.pid != ended.pid) continue;
      login.pid = -1;
      login.end = ended.end;
      login.ended_at = now;
    }
  }

  void Step(SshLogin& login, Clock::time_point now) {
    using State = SshLogin::State;
    if (login.state == State::waiting) {
      if (ending_ || login.unwanted) return Over(login, {}, "");
      if (now >= login.not_before && pace_.MayStart()) Begin(login, now);
    }
    if (login.state == State::connecting) FindAgent(login);
    if (login.state == State::attached) login.PassErrorsOn();
    if (login.state == State::probing && now > login.began + kProbeTime && login.pid > 0) ::kill(login.pid, SIGKILL);
    if (ending_ && (login.state == State::connecting || login.state == State::probing) && login.pid > 0)
      ::kill(login.pid, SIGKILL);
    if (inputs_end_) login.CloseInput();
    // What it wrote last may still be in its pipes; somebody else may hold them open.
    if (login.end && (login.OutputsEnded() || now > login.ended_at + kDrainTime)) Ended(login, now);
  }

  void Begin(SshLogin& login, Clock::time_point now) {
    try {
      login.Start(SshCommand(settings_, login.host, kAttached), SshLogin::State::connecting, now);
      watcher_.Watch(login.pid);
      ++login.attempts;
      pace_.Started();
    } catch (const Error& error) {
      login.pid = -1;
      const std::string text = error.what();
      const bool absent = text.find("cannot find the program") != std::string::npos;
      Over(login, {1, 0}, text + (absent ? "; bootstrap ssh needs the OpenSSH client (openssh-client)" : ""));
    }
  }

  void FindAgent(SshLogin& login) {
    const std::optional<AttachedAgent> agent = FindReady(login.output);
    if (!agent) return;
    pace_.Ended(/*answered=*/true);
    login.state = SshLogin::State::attached;
    login.errors.clear();  // a banner, start-up files: not the agent's
    if (agent->protocol == kProtocolVersion && agent->build == BuildVersion()) return login.HandOver();
    login.refusal = VersionsDiffer(login.host.host, settings_.AgentProgram(),
                                   agent->build + " (protocol " + std::to_string(agent->protocol) + ")");
    login.CloseInput();  // it is told nothing
  }

  void Ended(SshLogin& login, Clock::time_point now) {
    using State = SshLogin::State;
    const ProcessEnd end = *login.end;
    login.Close();
    if (login.state == State::attached) {
      if (!login.refusal.empty()) return Over(login, end, login.refusal);
      return Over(login, AgentEnd(end), AgentEndText(login, end), /*was_up=*/true);
    }
    if (login.state == State::probing) {
      const std::string version = AgentVersion(login.output);
      if (version.empty()) return Over(login, end, login.refusal);
      return Over(login, end, VersionsDiffer(login.host.host, settings_.AgentProgram(), version));
    }
    const SshFailure failure =
        ReadSshFailure(login.host, settings_.AgentProgram(), end, login.errors,
                       {settings_.ssh_config == "auto" ? "" : settings_.ssh_config, settings_.ssh_port});
    using Next = SshFailure::Next;
    const bool again =
        failure.next == Next::retry || (failure.next == Next::retry_a_few && login.attempts < kFewAttempts);
    const auto pause = Duration(pace_.Pause(login.attempts).count());
    login.refusal = failure.message;
    if (failure.next == Next::retry) {
      pace_.TurnedAway(login.began, now);
    } else {
      pace_.Ended(/*answered=*/false);
    }
    if (ending_ || login.unwanted) return Over(login, end, failure.message);
    if (again && now + pause < deadline_) {
      login.state = State::waiting;
      login.not_before = now + pause;
      return;
    }
    if (failure.next == Next::ask_version) return Probe(login, now);
    Over(login, end, failure.message + login.AttemptsText());
  }

  /// An agent that does not know `--attached` is another build's: which?
  void Probe(SshLogin& login, Clock::time_point now) {
    try {
      login.Start(SshCommand(settings_, login.host, "--version"), SshLogin::State::probing, now);
      login.CloseInput();
      watcher_.Watch(login.pid);
    } catch (const Error&) {
      login.pid = -1;
      Over(login, {1, 0}, login.refusal);
    }
  }

  /// ssh's exit code is the agent's, unless it is ssh's own; a signal that ended ssh is none that ended the agent.
  static ProcessEnd AgentEnd(const ProcessEnd& ssh) { return ssh.signal != 0 ? ProcessEnd{255, 0} : ssh; }

  static std::string AgentEndText(const SshLogin& login, const ProcessEnd& end) {
    const std::string words = LastWords(login.errors);
    const std::string said = words.empty() ? "" : ": " + words;
    if (end.signal != 0) return "its ssh was " + EndText(end) + said;
    if (end.code == 255) return "its ssh connection ended, or ds-agent was killed" + said;
    return words;
  }

  void Over(SshLogin& login, const ProcessEnd& end, const std::string& text, bool was_up = false) {
    login.Close();
    login.state = SshLogin::State::over;
    login.secret.clear();
    on_end_({login.node, end, text, was_up});
  }

  BootstrapSettings settings_;
  OnAgentEnd on_end_;
  mutable std::mutex mutex_;
  std::condition_variable all_ended_;
  std::deque<SshLogin> logins_;
  std::vector<EndedProcess> ended_processes_;
  LoginPace pace_;
  Clock::time_point deadline_;
  int wake_fd_ = -1;
  bool ending_ = false, inputs_end_ = false, stop_ = false;
  std::vector<ProcessId> before_;
  std::thread thread_;
  ProcessWatcher watcher_;  // last: its thread uses the rest
};

}  // namespace

std::unique_ptr<Bootstrap> MakeSshBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end) {
  return std::make_unique<SshBootstrap>(settings, std::move(on_end));
}

}  // namespace ds
