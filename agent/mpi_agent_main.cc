// ds-mpi-agent: what mpirun starts on each node for `--bootstrap mpi`. It gets the agents' secrets where they belong,
// starts ds-agent, and watches over it.
//
// mpirun passes its standard input to rank 0 only (Open MPI 5 loses it on the way to all), so rank 0 reads the
// bootstrap messages of all agents there (their length in 8 bytes, then a deepshard.v1.Bootstraps) and hands each rank
// its own by MPI_Scatterv. MPI is over before the agent starts, which reads its message from a pipe: no secret is in
// argv, the environment or a file.
//
// The agent is a child, so that how it ended is known, and told on standard output, which mpirun brings to the
// launcher:
//     ds-mpi-agent: node 1 began 4711 BOOT-ID        the agent's process
//     ds-mpi-agent: node 1 ended CODE SIGNAL
// What a killed agent left behind on its node ends with it.
//
// `ds-mpi-agent --guard FOLDER mpirun ...` is what ds-launch runs: it ends mpirun, and removes what mpirun left here
// and FOLDER, when the launcher was killed.
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/deepshard.pb.h"
#include "proto/version.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/process.h"
#include "runtime/base/signal.h"
#include "runtime/base/socket.h"

namespace {

constexpr char kHelp[] =
    "ds-mpi-agent is started for you, one on each node, by the mpirun of ds-launch --bootstrap mpi. Rank 0 reads the\n"
    "agents' bootstrap messages from standard input; each rank gets its own over MPI and starts ds-agent with it.\n\n"
    "  ds-mpi-agent AGENT                         AGENT: ds-agent's path, or its name for PATH\n"
    "  ds-mpi-agent --guard FOLDER mpirun ARGS... runs mpirun and ends it when the caller dies; removes FOLDER\n"
    "  ds-mpi-agent --help | --version\n";

constexpr size_t kMaxInput = 1u << 30;
/// An agent that was told to end kills its workers first; one that does not end within this is killed.
constexpr auto kAgentEnds = std::chrono::seconds(2);
/// The same of mpirun, which ends agents everywhere; longer than they have.
constexpr auto kMpirunEnds = std::chrono::seconds(10);

/// Exactly `bytes` of standard input; fewer where it ends.
std::string ReadStandardInput(size_t bytes) {
  std::string read;
  char block[65536];
  while (read.size() < bytes) {
    ssize_t n = ::read(STDIN_FILENO, block, std::min(sizeof block, bytes - read.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw ds::SystemError("cannot read the bootstrap messages from standard input", errno);
    if (n == 0) break;
    read.append(block, static_cast<size_t>(n));
  }
  return read;
}

void Forget(std::string& secret) { ::explicit_bzero(secret.data(), secret.size()); }

/// The messages of all agents, by rank; rank 0's standard input.
std::vector<std::string> ReadSecrets(int ranks) {
  uint64_t length = 0;  // their length comes first: Open MPI 5 passes on no end of file
  const std::string head = ReadStandardInput(sizeof length);
  if (head.size() == sizeof length) std::memcpy(&length, head.data(), sizeof length);
  std::string bytes = ReadStandardInput(std::min<uint64_t>(length, kMaxInput));
  deepshard::v1::Bootstraps all;
  if (bytes.size() != length || !all.ParseFromString(bytes) || all.agents_size() != ranks) {
    throw ds::UsageError("standard input holds " + std::to_string(all.agents_size()) + " bootstrap messages for " +
                         std::to_string(ranks) + " ranks: ds-mpi-agent is started by ds-launch --bootstrap mpi");
  }
  Forget(bytes);
  std::vector<std::string> secrets;
  for (const auto& agent : all.agents()) secrets.push_back(agent.SerializeAsString());
  return secrets;
}

struct Place {
  int rank = 0;
  std::string secret;
};

/// Collective. What is wrong with the input ends every rank.
Place Scatter() {
  MPI_Init(nullptr, nullptr);
  Place place;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<int> sizes, offsets;
  std::string all;
  std::optional<ds::UsageError> wrong;
  if (place.rank == 0) {
    try {
      for (std::string& secret : ReadSecrets(ranks)) {
        offsets.push_back(static_cast<int>(all.size()));
        sizes.push_back(static_cast<int>(secret.size()));
        all += secret;
        Forget(secret);
      }
    } catch (const ds::Error& error) {
      wrong.emplace(error.what());
      sizes.assign(static_cast<size_t>(ranks), 0);
      offsets.assign(static_cast<size_t>(ranks), 0);
    }
  }
  int size = 0;
  MPI_Scatter(sizes.data(), 1, MPI_INT, &size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  place.secret.resize(static_cast<size_t>(size));
  MPI_Scatterv(all.data(), sizes.data(), offsets.data(), MPI_BYTE, place.secret.data(), size, MPI_BYTE, 0,
               MPI_COMM_WORLD);
  Forget(all);
  MPI_Finalize();
  if (wrong) throw *wrong;
  if (size == 0) throw ds::UsageError("rank 0 had no bootstrap message for this node");
  return place;
}

/// The environment without what mpirun and MPI put there: a program of the job must not take itself for a rank of this
/// mpirun.
std::vector<std::string> AgentEnvironment() {
  std::vector<std::string> kept;
  for (const std::string& variable : ds::InheritedEnvironment()) {
    bool of_mpi = false;
    for (const char* prefix : {"OMPI_", "PMIX_", "PRTE_", "ORTE_", "OPAL_"})
      of_mpi = of_mpi || variable.starts_with(prefix);
    if (!of_mpi) kept.push_back(variable);
  }
  return kept;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

/// Whole lines, by one write each: mpirun passes on what it reads.
void Tell(const std::string& line) {
  const std::string text = "ds-mpi-agent: " + line + "\n";
  [[maybe_unused]] ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
}

/// One child, from its start to its end; signals reach it at any time.
class Supervisor {
 public:
  Supervisor()
      : signals_({SIGTERM, SIGINT, SIGHUP}, [this](int) { Signal(); }),
        watcher_([this](pid_t, ds::ProcessEnd end) { Ended(end); }) {}

  void Start(const ds::SpawnOptions& options) {
    std::lock_guard lock(mutex_);
    pid_ = ds::Spawn(options);
    watcher_.Watch(pid_);
  }

  void StartAgent(const std::string& program, const std::string& secret) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) throw ds::SystemError("cannot make a pipe for the agent", errno);
    ds::SpawnOptions options;
    options.argv = {program};
    options.environment = AgentEnvironment();
    options.stdin_fd = pipe[0];
    options.stdout_fd = STDERR_FILENO;  // standard output is ours
    options.new_session = true;
    options.parent_death_signal = SIGTERM;
    Start(options);
    ::close(pipe[0]);
    for (size_t done = 0; done < secret.size();) {
      ssize_t n = ::write(pipe[1], secret.data() + done, secret.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;  // the agent died: its end is told
      done += static_cast<size_t>(n);
    }
    ::close(pipe[1]);
  }

  /// `patience`: from a signal until the child is killed.
  ds::ProcessEnd Wait(std::chrono::seconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return end_ || told_; });
    if (!changed_.wait_for(lock, patience, [this] { return end_.has_value(); })) {
      ::kill(pid_, SIGKILL);
      changed_.wait(lock, [this] { return end_.has_value(); });
    }
    return *end_;
  }

  pid_t pid() const { return pid_; }

 private:
  void Signal() {
    std::lock_guard lock(mutex_);
    told_ = true;
    changed_.notify_all();
    if (pid_ < 0) ::_exit(128 + SIGTERM);  // MPI may be waiting for ranks that never come
    if (end_) return;
    ::kill(pid_, SIGTERM);
    ::kill(pid_, SIGCONT);
  }

  void Ended(ds::ProcessEnd end) {
    std::lock_guard lock(mutex_);
    end_ = end;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  pid_t pid_ = -1;
  bool told_ = false;
  std::optional<ds::ProcessEnd> end_;
  const ds::SignalWatcher signals_;  // before other threads, which must leave the signals to it
  ds::ProcessWatcher watcher_;       // last: its thread uses the rest
};

int Run(const std::string& program) {
  Supervisor supervisor;
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // without mpirun's daemon nobody would end this node's part
  if (::getppid() != parent) return 1;
  ds::BecomeSubreaper();
  Place place = Scatter();
  const std::string node = "node " + std::to_string(place.rank);
  try {
    supervisor.StartAgent(program, place.secret);
  } catch (const ds::Error& error) {
    ds::LogError(std::string("ds-mpi-agent: ") + error.what());
    Tell(node + " ended 127 0");
    return 0;
  }
  Forget(place.secret);
  Tell(node + " began " + std::to_string(supervisor.pid()) + " " + BootId());
  const ds::ProcessEnd end = supervisor.Wait(kAgentEnds);
  ds::KillDescendants({}, 5);
  ds::SocketFolder::RemoveLeftovers();
  Tell(node + " ended " + std::to_string(end.code) + " " + std::to_string(end.signal));
  return 0;  // told; mpirun has nothing to say about it
}

/// What an mpirun that was killed leaves in the folder for temporary files, by the names of Open MPI 4 and 5.
void RemoveFilesOf(pid_t mpirun) {
  namespace fs = std::filesystem;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const char* folder = std::getenv("TMPDIR");
  const fs::path temporary = folder && *folder ? folder : "/tmp";
  const std::string pid = std::to_string(mpirun);
  const fs::path of_user = temporary / ("ompi." + std::string(host) + "." + std::to_string(::geteuid()));
  std::error_code ignored;
  fs::remove_all(of_user / ("pid." + pid), ignored);
  fs::remove(of_user, ignored);  // where it is empty
  fs::remove_all(temporary / ("ompi." + pid), ignored);
}

/// The caller has this process told when it dies (SpawnOptions::parent_death_signal).
int Guard(const std::string& folder, std::vector<std::string> argv) {
  Supervisor supervisor;
  ds::BecomeSubreaper();
  ds::SpawnOptions options;
  options.argv = std::move(argv);
  options.environment = ds::InheritedEnvironment();
  options.stdin_fd = STDIN_FILENO;
  options.new_group = true;
  options.parent_death_signal = SIGTERM;
  supervisor.Start(options);
  // mpirun must be the only one to read its input.
  ::close(STDIN_FILENO);
  const ds::ProcessEnd end = supervisor.Wait(kMpirunEnds);
  // Agents whose mpirun was killed end by themselves, and tidy up.
  for (const auto until = std::chrono::steady_clock::now() + kAgentEnds;
       !ds::Descendants().empty() && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ds::KillDescendants({}, 5);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  RemoveFilesOf(supervisor.pid());
  if (end.signal == 0) return end.code;
  ::signal(end.signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, end.signal);
  ::raise(end.signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  return 128 + end.signal;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("ds-mpi-agent %s (protocol %u)\n", ds::BuildVersion(), ds::kProtocolVersion);
    return 0;
  }
  if (argc > 3 && std::strcmp(argv[1], "--guard") == 0) {
    try {
      return Guard(argv[2], {argv + 3, argv + argc});
    } catch (const ds::Error& error) {
      ds::LogError(std::string("ds-mpi-agent: ") + error.what());
      return 127;
    }
  }
  const bool help = argc == 2 && std::strcmp(argv[1], "--help") == 0;
  if (argc != 2 || argv[1][0] == '-' || argv[1][0] == '\0') {
    std::fputs(kHelp, help ? stdout : stderr);
    return help ? 0 : 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return Run(argv[1]);
  } catch (const ds::Error& error) {
    ds::LogError(std::string("ds-mpi-agent: ") + error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    ds::LogError(std::string("ds-mpi-agent: ") + error.what());
    return 1;
  }
}
