// Bootstrap `mpi`: one mpirun (Open MPI) starts a ds-mpi-agent on each host, which starts the agent there. The hosts
// stand in a file of ours, one a line, and are mapped in this order, so that rank N is node N. The agents' secrets go
// to mpirun's standard input, from there to rank 0, and by MPI to the others (agent/mpi_agent_main.cc). mpirun itself
// runs under a guard, which ends it and what it left here when this process is killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "launcher/bootstrap/bootstrap.h"
#include "launcher/bootstrap/mpi_output.h"
#include "launcher/bootstrap/this_machine.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/socket.h"

namespace ds {
namespace {

constexpr const char* kProgram = "ds-mpi-agent";
/// mpirun's own end of a rank: after SIGTERM an agent kills its workers, which takes a moment.
constexpr const char* kMpirunKillsAfter = "3";  // it always waits that long
/// After mpirun ended: until what it passed on was read here.
constexpr auto kLastWords = std::chrono::milliseconds(500);
constexpr auto kMpirunEnds = std::chrono::seconds(12);  // its guard kills it before

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

void WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // mpirun died: its end is told
    done += static_cast<size_t>(n);
  }
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("cannot make a pipe for mpirun", errno);
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  void CloseRead() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void CloseWrite() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

/// What `mpirun --version` prints.
std::string PrintedVersion() {
  Pipe out;
  SpawnOptions options;
  options.argv = {"mpirun", "--version"};
  options.environment = InheritedEnvironment();
  options.stdout_fd = options.stderr_fd = out.write;
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  ProcessWatcher watcher([&](pid_t, ProcessEnd) {
    std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  });
  const pid_t pid = Spawn(options);
  watcher.Watch(pid);
  out.CloseWrite();
  std::string printed;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (char block[4096];;) {
    pollfd waiting{out.read, POLLIN, 0};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) == 0) break;
    ssize_t n = ::read(out.read, block, sizeof block);
    if (n <= 0) break;
    printed.append(block, static_cast<size_t>(n));
  }
  std::unique_lock lock(mutex);
  if (!changed.wait_until(lock, until, [&] { return ended; })) {
    ::kill(pid, SIGKILL);
    changed.wait(lock, [&] { return ended; });
  }
  return printed;
}

/// Why the mpirun in PATH will not do; empty: it will.
std::string TroubleWithMpirun() {
  constexpr const char* kAdvice =
      " (Debian: apt-get install openmpi-bin), put it into PATH, or choose another --bootstrap";
  std::string printed;
  try {
    printed = PrintedVersion();
  } catch (const SystemError& error) {
    return std::string("bootstrap `mpi` needs Open MPI's mpirun: ") + error.what() + ": install it" + kAdvice;
  }
  const std::string version = OpenMpiVersion(printed);
  if (version.starts_with("Open MPI 4.") || version.starts_with("Open MPI 5.")) return "";
  return "bootstrap `mpi` needs mpirun of Open MPI 4 or 5, and the one in PATH is " +
         (version.empty() ? "another: `" + printed.substr(0, printed.find('\n')) + "`" : version) +
         ": install Open MPI" + kAdvice;
}

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end)
      : settings_(settings), on_end_(std::move(on_end)), watcher_([this](pid_t, ProcessEnd end) { MpirunEnded(end); }) {
    BecomeSubreaper();  // what a killed mpirun leaves on this machine becomes ours to end
    before_ = Descendants();
    ::signal(SIGPIPE, SIG_IGN);
  }
  ~MpiBootstrap() override {
    EndAll(0);
    if (writer_.joinable()) writer_.join();
    if (reader_.joinable()) reader_.join();
  }

  std::string name() const override { return "mpi"; }

  std::string Refusal(const HostSlots& host) const override {
    if (!trouble_) trouble_ = TroubleWithMpirun();
    if (!trouble_->empty()) return *trouble_;
    if (!host.user.empty()) {
      return "host " + host.user + "@" + host.host + ": mpirun takes no user names; leave `" + host.user +
             "@` out and name the user in ~/.ssh/config (Host " + host.host + ", User " + host.user + ")";
    }
    if (host.host.find(':') != std::string::npos && !IsLoopback(host.host)) {
      return "host [" + host.host + "]: mpirun takes no IPv6 addresses; write the host's name";
    }
    return "";
  }

  std::vector<BootstrapCommand> Commands(const std::vector<HostSlots>& hosts) const override {
    std::string names;
    for (const HostSlots& host : hosts) names += (names.empty() ? "" : ", ") + host.host;
    return {{names, Argv("HOSTS", hosts.size())}};
  }

  bool OnThisMachine() const override { return false; }

  void BringUp(const std::vector<AgentPlace>& agents) override {
    try {
      Start(agents);
    } catch (const Error& error) {
      throw BringUpError{agents[0].node, error.what()};
    }
  }

  bool SeesAgentsEnd() const override { return true; }

  void Kill(uint32_t node) override {
    std::lock_guard lock(mutex_);
    given_up_.insert(node);
    ended_.notify_all();
    auto it = agents_.find(node);
    if (it == agents_.end() || it->second.boot_id != BootId()) return;  // elsewhere: its lease ends it
    for (const ProcessId& process : Descendants()) {
      if (process.pid == it->second.pid) ::kill(process.pid, SIGKILL);
    }
  }

  void EndAll(double patience_seconds) override {
    {
      std::unique_lock lock(mutex_);
      if (std::exchange(ending_, true)) return;
      const auto gone = [&] { return mpirun_ < 0; };
      const auto agents_gone = [&] {
        return gone() || std::all_of(nodes_.begin(), nodes_.end(), [&](uint32_t n) { return given_up_.contains(n); });
      };
      if (!gone()) {
        ended_.wait_for(lock, std::chrono::duration<double>(patience_seconds), agents_gone);
        // An mpirun that lost one of its daemons does not end by itself.
        ended_.wait_for(lock, std::chrono::duration<double>(std::min(patience_seconds, 1.0)), gone);
        if (!gone()) ::kill(mpirun_, SIGTERM);  // it ends what it started elsewhere
        ended_.wait_for(lock, kMpirunEnds, gone);
        if (!gone()) ::kill(mpirun_, SIGKILL);
        ended_.wait_for(lock, kMpirunEnds, gone);
      }
    }
    AwaitOrphans(patience_seconds);
    KillDescendants(before_, 5);
    folder_.reset();
    SocketFolder::RemoveLeftovers();
  }

 private:
  struct AgentProcess {
    pid_t pid = -1;
    std::string boot_id;
  };

  /// ds-mpi-agent beside the agent's program.
  std::string Program() const {
    const std::filesystem::path agent = settings_.AgentProgram();
    return agent.has_parent_path() ? (agent.parent_path() / kProgram).string() : kProgram;
  }

  std::vector<std::string> Argv(const std::string& hostfile, size_t hosts) const {
    return {"mpirun", "-n", std::to_string(hosts), "--hostfile", hostfile, "--map-by", "seq", "--bind-to", "none",
            // an agent that is killed does not take the others with it
            "--enable-recovery", "--tag-output",
            // MPI carries the secrets alone: any network does
            "--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "odls_base_sigkill_timeout", kMpirunKillsAfter,
            Program(), settings_.AgentProgram()};
  }

  std::string WriteHosts(const std::vector<AgentPlace>& agents) {
    folder_ = std::make_unique<SocketFolder>();
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    std::string text;
    // mpirun knows this machine by its name; that many loopback addresses are one host to it.
    for (const AgentPlace& agent : agents) {
      text += (IsThisMachine(agent.host.host) ? std::string(name) : agent.host.host) + "\n";
    }
    const std::string path = (folder_->path() / "hosts").string();
    WriteFileAtomically(path, text);
    return path;
  }

  std::vector<std::string> Environment() const {
    std::vector<std::string> environment = InheritedEnvironment();
    if (::geteuid() != 0) return environment;
    LogInfo(
        "bootstrap mpi: this is root, whom mpirun refuses unless OMPI_ALLOW_RUN_AS_ROOT and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM are set: they are, for it alone");
    for (const char* of : {"OMPI", "PRTE"}) {
      for (const char* name : {"_ALLOW_RUN_AS_ROOT", "_ALLOW_RUN_AS_ROOT_CONFIRM"})
        SetVariable(environment, std::string(of) + name, "1");
    }
    return environment;
  }

  void Start(const std::vector<AgentPlace>& agents) {
    ::deepshard::v1::Bootstraps all;
    for (const AgentPlace& agent : agents) {
      if (!all.add_agents()->ParseFromString(agent.secret))
        throw RuntimeError("an agent's bootstrap message is broken");
      nodes_.push_back(agent.node);
      names_.push_back(agent.host.host);
    }
    Pipe in;
    out_ = std::make_unique<Pipe>();
    err_ = std::make_unique<Pipe>();
    SpawnOptions options;
    const std::string hosts = WriteHosts(agents);
    options.argv = {ExecutableFolder() + "/" + kProgram, "--guard", folder_->path()};
    for (std::string& argument : Argv(hosts, agents.size())) options.argv.push_back(std::move(argument));
    options.environment = Environment();
    options.stdin_fd = in.read;
    options.stdout_fd = out_->write;
    options.stderr_fd = err_->write;
    options.new_session = true;
    options.parent_death_signal = SIGTERM;
    {
      std::lock_guard lock(mutex_);  // MpirunEnded waits until it is known
      mpirun_ = Spawn(options);
      watcher_.Watch(mpirun_);
    }
    out_->CloseWrite();
    err_->CloseWrite();
    in.CloseRead();
    reader_ = std::thread([this] { Read(); });
    // More than a pipe holds, and mpirun reads it when it comes to it.
    const std::string bytes = all.SerializeAsString();
    const uint64_t length = bytes.size();
    std::string secrets(reinterpret_cast<const char*>(&length), sizeof length);
    secrets += bytes;
    writer_ = std::thread([fd = std::exchange(in.write, -1), secrets = std::move(secrets)]() mutable {
      WriteAll(fd, secrets);
      ::explicit_bzero(secrets.data(), secrets.size());
      ::close(fd);
    });
  }

  // ---- the reader's thread

  void Read() {
    std::array<std::string, 2> waiting;
    std::array<pollfd, 2> streams{{{out_->read, POLLIN, 0}, {err_->read, POLLIN, 0}}};
    char block[65536];
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
      if (::poll(streams.data(), streams.size(), -1) < 0 && errno != EINTR) break;
      for (size_t i = 0; i < streams.size(); ++i) {
        if (streams[i].fd < 0 || streams[i].revents == 0) continue;
        ssize_t n = ::read(streams[i].fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
          streams[i].fd = -1;
          continue;
        }
        waiting[i].append(block, static_cast<size_t>(n));
        TakeLines(waiting[i]);
      }
    }
    std::lock_guard lock(mutex_);
    read_ = true;
    ended_.notify_all();
  }

  void TakeLines(std::string& waiting) {
    size_t begin = 0;
    for (size_t end; (end = waiting.find('\n', begin)) != std::string::npos; begin = end + 1) {
      TakeLine(std::string_view(waiting).substr(begin, end - begin));
    }
    waiting.erase(0, begin);
  }

  void TakeLine(std::string_view line) {
    const TaggedLine tagged = ReadTag(line);
    const MpiAgentLine told = ReadMpiAgentLine(tagged.text);
    if (!tagged.of_rank) {
      LogDebug("mpirun: " + std::string(line));
      std::lock_guard lock(mutex_);
      words_.Add(line);
    } else if (told.kind == MpiAgentLine::Kind::began) {
      std::lock_guard lock(mutex_);
      agents_[told.node] = {told.pid, told.boot_id};
    } else if (told.kind == MpiAgentLine::Kind::ended) {
      AgentEnds(told.node, told.end, "");
    } else {
      const std::string text = std::string(tagged.text) + "\n";
      WriteAll(STDERR_FILENO, text);  // an agent's
    }
  }

  // ---- ends

  void AgentEnds(uint32_t node, const ProcessEnd& end, const std::string& text) {
    {
      std::lock_guard lock(mutex_);
      auto it = std::find(nodes_.begin(), nodes_.end(), node);
      if (it == nodes_.end()) return;
      names_.erase(names_.begin() + (it - nodes_.begin()));
      nodes_.erase(it);
      agents_.erase(node);
      ended_.notify_all();
      if (ending_) return;
    }
    on_end_({node, end, text});
  }

  void MpirunEnded(const ProcessEnd& end) {
    std::vector<uint32_t> left;
    std::string text;
    {
      std::unique_lock lock(mutex_);
      ended_.wait_for(lock, kLastWords, [this] { return read_; });
      mpirun_ = -1;
      ended_.notify_all();
      left = nodes_;
      if (int named = words_.FirstNamed(names_); named > 0) std::rotate(left.begin(), left.begin() + named, left.end());
      text = "mpirun, which brought up the agents, ended";
      if (const std::string words = words_.text(); !words.empty()) text += ", and had said:\n" + words;
    }
    for (uint32_t node : left) AgentEnds(node, end, text);
  }

  /// Agents on this machine whose mpirun was killed end by themselves, within moments.
  void AwaitOrphans(double patience_seconds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
    const auto ours = [&] {
      std::vector<ProcessId> now = Descendants();
      return std::any_of(now.begin(), now.end(), [&](const ProcessId& process) {
        return std::find(before_.begin(), before_.end(), process) == before_.end();
      });
    };
    while (ours() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  const BootstrapSettings settings_;
  OnAgentEnd on_end_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::unique_ptr<SocketFolder> folder_;  ///< of the hosts' file
  std::vector<uint32_t> nodes_;           ///< whose agents have not ended
  std::vector<std::string> names_;        ///< and their hosts
  std::map<uint32_t, AgentProcess> agents_;
  std::set<uint32_t> given_up_;  ///< nodes whose agents are not waited for
  MpirunWords words_;
  mutable std::optional<std::string> trouble_;  ///< with mpirun itself; empty: none
  pid_t mpirun_ = -1;
  bool read_ = false, ending_ = false;
  std::vector<ProcessId> before_;  ///< children that this process had before: not ours to end
  std::unique_ptr<Pipe> out_, err_;
  std::thread writer_, reader_;
  ProcessWatcher watcher_;  // last: its thread uses the rest
};

}  // namespace

std::unique_ptr<Bootstrap> MakeMpiBootstrap(const BootstrapSettings& settings, OnAgentEnd on_end) {
#ifdef DS_HAS_MPI
  return std::make_unique<MpiBootstrap>(settings, std::move(on_end));
#else
  (void)settings;
  (void)on_end;
  throw UsageError(
      "bootstrap `mpi` is not in this build: CMake found no MPI (Debian: apt-get install libopenmpi-dev, then build "
      "again); choose another --bootstrap");
#endif
}

}  // namespace ds
