#include "agent/daemon/daemon.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "agent/daemon/notify.h"
#include "agent/daemon/service.h"
#include "agent/output_reader.h"
#include "proto/daemon.pb.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "runtime/base/queue.h"
#include "runtime/base/signal.h"
#include "runtime/base/socket.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(200);
/// From SIGTERM to SIGKILL of an agent whose launcher is gone: what a launcher's death leaves ends within 2 s.
constexpr auto kPatience = std::chrono::milliseconds(1500);
/// Until a launcher that opened a stream must have handed over its job.
constexpr auto kHandOverWithin = std::chrono::seconds(10);
/// How long the last lines of an ended agent may take to arrive.
constexpr auto kSettle = std::chrono::milliseconds(300);
constexpr size_t kMostBootstrapBytes = 1 << 20;  // what an agent reads
constexpr size_t kLastLines = 20;
constexpr double kLinesPerSecond = 100;  // of an agent, into the daemon's log
constexpr size_t kMostRemembered = 4096;

// What the main thread is told by the others.
struct Opened {
  uint64_t stream;
  std::string launcher;
};
struct Requested {
  uint64_t stream;
  pb::DaemonRequest request;
};
struct Closed {
  uint64_t stream;
};
struct Wrote {
  uint64_t stream;
  std::vector<OutputLine> lines;
};
struct OutputEnded {
  uint64_t stream;
};
struct ChildEnded {
  pid_t pid;
  ProcessEnd end;
};
struct Signalled {
  int signal;
};
using Happening = std::variant<Opened, Requested, Closed, Wrote, OutputEnded, ChildEnded, Signalled>;

/// A launcher's stream, and the agent that was started for it.
struct Charge {
  std::string launcher, job_id;
  uint32_t node = 0;
  Clock::time_point since;
  bool open = true;  ///< the stream
  pid_t pid = -1;    ///< -1: none was started
  ProcessId identity;
  bool output_open = false;
  std::deque<std::string> last_lines;
  std::optional<Clock::time_point> kill_at;  ///< asked to end; killed then
  std::string why;                           ///< the daemon's own reason to end it
  std::optional<ProcessEnd> end;
  Clock::time_point ended_at;
};

std::string UserName() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry ? std::string(entry->pw_name) : std::to_string(::geteuid());
}

std::string BuildText(const std::string& build, uint32_t protocol) {
  return "build " + build + " (protocol " + std::to_string(protocol) + ")";
}

/// This program's file, also after another was installed in its place: the agent is of the daemon's own build.
std::string OwnProgram() {
  const std::string path = ExecutableFolder() + "/ds-agent";
  struct stat installed {
  }, running{};
  const bool same = ::stat(path.c_str(), &installed) == 0 && ::stat("/proc/self/exe", &running) == 0 &&
                    installed.st_ino == running.st_ino && installed.st_dev == running.st_dev;
  return same ? path : "/proc/self/exe";
}

void WriteAndClose(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // the agent died: its end is told
    done += static_cast<size_t>(n);
  }
  ::close(fd);
}

class Daemon {
 public:
  Daemon(const DaemonConfig& config, const Identity& identity)
      : config_(config),
        output_(
            [this](WorkerKey key, std::vector<OutputLine> lines) {
              queue_.Push(Wrote{static_cast<uint64_t>(key.attempt), std::move(lines)});
            },
            [](WorkerKey, uint64_t) {},
            [this](WorkerKey key) { queue_.Push(OutputEnded{static_cast<uint64_t>(key.attempt)}); }),
        watcher_([this](pid_t pid, ProcessEnd end) {
          queue_.Push(ChildEnded{pid, end});
        }),
        service_(config, identity,
                 {[this](uint64_t stream, std::string launcher) {
                    queue_.Push(Opened{stream, std::move(launcher)});
                  },
                  [this](uint64_t stream, pb::DaemonRequest&& request) {
                    queue_.Push(Requested{stream, std::move(request)});
                  },
                  [this](uint64_t stream) { queue_.Push(Closed{stream}); }}) {}

  int Run() {
    BecomeSubreaper();  // what a killed agent leaves behind becomes ours to end
    const std::string at = config_.listen + ":" + std::to_string(service_.port());
    LogInfo("ds-agent --daemon: listening on " + at + " for " + UserName() + "'s launchers, " +
            BuildText(BuildVersion(), kProtocolVersion) + ", process " + std::to_string(::getpid()));
    NotifyServiceManager("READY=1\nSTATUS=listening on " + at);
    while (!(stopping_ && charges_.empty())) {
      if (std::optional<Happening> happening = queue_.PopUntil(Clock::now() + kTick)) {
        std::visit([this](auto& h) { On(h); }, *happening);
      }
      OnTime(Clock::now());
    }
    KillDescendants({}, 5);
    LogInfo("ds-agent --daemon: ended");
    return 0;
  }

 private:
  // ---- launchers

  void On(Opened& opened) {
    Charge charge;
    charge.launcher = opened.launcher;
    charge.since = Clock::now();
    charges_.emplace(opened.stream, std::move(charge));
  }

  void On(Requested& requested) {
    auto it = charges_.find(requested.stream);
    if (it == charges_.end() || !it->second.open) return;
    Charge& charge = it->second;
    if (requested.request.has_kill()) {
      if (charge.pid > 0 && !charge.end) ::kill(charge.pid, SIGKILL);
      return;
    }
    if (!requested.request.has_hand_over()) return;
    pb::HandOver& hand_over = *requested.request.mutable_hand_over();
    if (const std::string reason = Refusal(charge, hand_over); !reason.empty()) {
      LogWarning("job " + Shown(hand_over.job_id()) + " of " + charge.launcher + " is refused: " + reason);
      Refuse(requested.stream, reason);
    } else {
      Start(requested.stream, charge, hand_over);
    }
    ::explicit_bzero(hand_over.mutable_bootstrap()->data(), hand_over.bootstrap().size());
  }

  std::string Refusal(const Charge& charge, const pb::HandOver& hand_over) {
    const std::string own = BuildText(BuildVersion(), kProtocolVersion);
    if (hand_over.protocol() != kProtocolVersion || hand_over.build() != BuildVersion()) {
      return "the daemon is " + own + ", ds-launch is " + BuildText(hand_over.build(), hand_over.protocol()) +
             ": install the same build on every node and restart the daemon";
    }
    if (hand_over.user() != UserName()) {
      return "the daemon serves " + UserName() + " (user id " + std::to_string(::geteuid()) + "), not " +
             Shown(hand_over.user()) + ": a daemon serves one user; start one as that user, on a port of its own";
    }
    if (charge.pid > 0) return "this connection has handed its job over already";
    if (hand_over.job_id().empty() || hand_over.job_id().size() > 64 || hand_over.bootstrap().empty() ||
        hand_over.bootstrap().size() > kMostBootstrapBytes) {
      return "the message that hands the job over is not one of ds-launch";
    }
    if (stopping_) return "the daemon is ending";
    const auto key = std::pair(hand_over.job_id(), hand_over.node());
    if (auto it = epochs_.find(key); it != epochs_.end() && it->second >= hand_over.epoch()) {
      return "node " + std::to_string(hand_over.node()) + " of this job was handed over before (epoch " +
             std::to_string(it->second) + "; this is " + std::to_string(hand_over.epoch()) + "): it is not repeated";
    }
    std::set<std::string> jobs;
    for (const auto& [stream, other] : charges_) {
      if (other.pid > 0) jobs.insert(other.job_id);
    }
    if (!jobs.contains(hand_over.job_id()) && static_cast<int>(jobs.size()) >= config_.jobs) {
      return "the daemon is busy: it runs " + std::to_string(jobs.size()) + " of at most " +
             std::to_string(config_.jobs) + " jobs at once (`jobs` in its configuration): wait for one to end";
    }
    return "";
  }

  void Refuse(uint64_t stream, const std::string& reason) {
    pb::DaemonReply reply;
    reply.mutable_refused()->set_reason(reason);
    service_.Send(stream, std::move(reply));
    service_.Close(stream);
  }

  void Start(uint64_t stream, Charge& charge, const pb::HandOver& hand_over) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, error[2] = {-1, -1};
    const auto close_all = [&] {
      for (int fd : {in[0], in[1], out[0], out[1], error[0], error[1]}) {
        if (fd >= 0) ::close(fd);
      }
    };
    try {
      if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0) {
        throw SystemError("cannot make pipes for the agent", errno);
      }
      SpawnOptions options;
      options.argv = {OwnProgram()};
      options.environment = InheritedEnvironment();
      std::erase_if(options.environment, [](const std::string& v) { return v.starts_with("NOTIFY_SOCKET="); });
      options.stdin_fd = in[0];
      options.stdout_fd = out[1];
      options.stderr_fd = error[1];
      options.new_session = true;
      options.parent_death_signal = SIGTERM;  // it ends its workers, and itself
      charge.pid = Spawn(options);
      charge.identity = IdentifyProcess(charge.pid);
      watcher_.Watch(charge.pid);
    } catch (const Error& failed) {
      charge.pid = -1;
      close_all();
      return Refuse(stream, failed.what());
    }
    charge.job_id = hand_over.job_id();
    charge.node = hand_over.node();
    charge.output_open = true;
    Remember(hand_over);
    output_.Add({static_cast<int64_t>(stream), 0}, out[0], error[0], kLinesPerSecond);
    for (int fd : {in[0], out[1], error[1]}) ::close(fd);
    WriteAndClose(in[1], hand_over.bootstrap());
    LogInfo(Label(charge) + ": agent " + std::to_string(charge.pid) + " started for " + charge.launcher);
    pb::DaemonReply reply;
    reply.mutable_started()->set_pid(static_cast<uint32_t>(charge.pid));
    service_.Send(stream, std::move(reply));
  }

  /// A job's credentials are taken once for each epoch of a node.
  void Remember(const pb::HandOver& hand_over) {
    const auto key = std::pair(hand_over.job_id(), hand_over.node());
    if (epochs_.insert_or_assign(key, hand_over.epoch()).second) remembered_.push_back(key);
    if (remembered_.size() <= kMostRemembered) return;
    epochs_.erase(remembered_.front());
    remembered_.pop_front();
  }

  void On(Closed& closed) {
    auto it = charges_.find(closed.stream);
    if (it == charges_.end()) return;
    it->second.open = false;
    if (it->second.pid < 0) {
      charges_.erase(it);
    } else if (!it->second.end) {
      AskToEnd(it->second, "its launcher is gone");
    }
  }

  // ---- agents

  void AskToEnd(Charge& charge, const std::string& why) {
    if (charge.pid < 0 || charge.end || charge.kill_at) return;
    LogInfo(Label(charge) + ": " + why + ": ending its agent");
    charge.why = why;
    charge.kill_at = Clock::now() + kPatience;
    ::kill(charge.pid, SIGTERM);
    ::kill(charge.pid, SIGCONT);  // a stopped one too
  }

  void On(Wrote& wrote) {
    auto it = charges_.find(wrote.stream);
    if (it == charges_.end()) return;
    for (OutputLine& written : wrote.lines) {
      std::string& line = written.text;
      LogInfo(Label(it->second) + ": " + Shown(line, 2000));
      it->second.last_lines.push_back(std::move(line));
      if (it->second.last_lines.size() > kLastLines) it->second.last_lines.pop_front();
    }
  }

  void On(OutputEnded& ended) {
    if (auto it = charges_.find(ended.stream); it != charges_.end()) it->second.output_open = false;
  }

  void On(ChildEnded& child) {
    for (auto& [stream, charge] : charges_) {
      if (charge.pid != child.pid || charge.end) continue;
      charge.end = child.end;
      charge.ended_at = Clock::now();
      // What the agent did not end itself (it was killed) came to us.
      std::vector<ProcessId> others;
      for (const auto& [id, other] : charges_) {
        if (other.pid > 0 && !other.end) others.push_back(other.identity);
      }
      KillDescendants(others, 5);
      SocketFolder::RemoveLeftovers();
    }
  }

  /// Processes that came to us and ended by themselves.
  void ReapStrangers() {
    for (;;) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      for (const auto& [stream, charge] : charges_) {
        if (charge.pid == info.si_pid && !charge.end) return;  // the watcher's
      }
      ::waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  // ---- time and signals

  void OnTime(Clock::time_point now) {
    for (auto it = charges_.begin(); it != charges_.end();) {
      const uint64_t stream = it->first;
      Charge& charge = it->second;
      if (charge.pid < 0 && charge.open && now > charge.since + kHandOverWithin) service_.Close(stream);
      if (charge.kill_at && !charge.end && now > *charge.kill_at) ::kill(charge.pid, SIGKILL);
      if (!charge.end || (charge.output_open && now < charge.ended_at + kSettle)) {
        ++it;
        continue;
      }
      if (charge.output_open) output_.Drop({static_cast<int64_t>(stream), 0});
      Report(stream, charge);
      it = charges_.erase(it);
    }
    ReapStrangers();
    const bool working = std::any_of(charges_.begin(), charges_.end(), [](const auto& c) { return c.second.pid > 0; });
    if (working || charges_.size() > 0) idle_since_ = now;
    if (config_.idle_seconds > 0 && !stopping_ &&
        now - idle_since_ > std::chrono::duration<double>(config_.idle_seconds)) {
      Stop("no job for idle_seconds");
    }
  }

  void Report(uint64_t stream, const Charge& charge) {
    LogInfo(Label(charge) + ": its agent ended: " + EndText(*charge.end));
    pb::DaemonReply reply;
    pb::DaemonAgentEnded* ended = reply.mutable_ended();
    ended->set_code(charge.end->code);
    ended->set_signal(charge.end->signal);
    std::string text = charge.why;
    for (const std::string& line : charge.last_lines) text += (text.empty() ? "" : "\n") + Shown(line, 2000);
    ended->set_text(text);
    service_.Send(stream, std::move(reply));
    service_.Close(stream);
  }

  void On(Signalled& signalled) { Stop(SignalName(signalled.signal) + " received"); }

  void Stop(const std::string& why) {
    if (std::exchange(stopping_, true)) return;
    LogInfo("ds-agent --daemon: " + why + ": ending");
    NotifyServiceManager("STOPPING=1");
    for (auto& [stream, charge] : charges_) {
      if (charge.pid > 0) {
        AskToEnd(charge, "the daemon is ending: " + why);
      } else {
        service_.Close(stream);
      }
    }
  }

  static std::string Label(const Charge& charge) {
    return "job " + Shown(charge.job_id) + ", node " + std::to_string(charge.node);
  }

  const DaemonConfig& config_;
  Queue<Happening> queue_;
  SignalWatcher signals_{{SIGTERM, SIGINT, SIGHUP}, [this](int s) { queue_.Push(Signalled{s}); }};
  OutputReader output_;
  ProcessWatcher watcher_;
  DaemonService service_;
  std::map<uint64_t, Charge> charges_;  ///< by stream
  std::map<std::pair<std::string, uint32_t>, uint64_t> epochs_;
  std::deque<std::pair<std::string, uint32_t>> remembered_;
  Clock::time_point idle_since_ = Clock::now();
  bool stopping_ = false;
};

}  // namespace

int RunDaemon(const DaemonConfig& config) {
  const Identity identity = LoadIdentity(config.files);
  const bool node = std::any_of(identity.facts.names.begin(), identity.facts.names.end(),
                                [](const std::string& name) { return name.ends_with(".node.deepshard"); });
  if (!node) {
    throw UsageError(config.files.certificate + ": a certificate for " + identity.facts.NamesText() +
                     ", not for a node; a node's are in DIR/nodes/HOST of ds-launch --make-identity DIR");
  }
  return Daemon(config, identity).Run();
}

}  // namespace ds
