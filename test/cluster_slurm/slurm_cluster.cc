#include "test/cluster_slurm/slurm_cluster.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/process.h"
#include "test/catch.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

constexpr char kPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

bool InPath(const std::string& program) {
  for (const char* folder : {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}) {
    if (::access((std::string(folder) + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// A port that nobody has at this moment, on any address.
int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool ok = ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  if (!ok) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

std::string HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

std::string UserName() {
  const passwd* user = ::getpwuid(::geteuid());
  if (!user) throw std::runtime_error("SLURM needs a user with a name");
  return user->pw_name;
}

bool Alive(pid_t pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(')');
  return end != std::string::npos && end + 2 < stat.size() && stat[end + 2] != 'Z' && stat[end + 2] != 'X';
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && pid != ::getpid() && Alive(pid)) found.push_back(pid);
  }
  ::closedir(folder);
  return found;
}

std::string EnvironmentOf(pid_t pid) { return '\0' + ReadText("/proc/" + std::to_string(pid) + "/environ"); }

bool Carries(pid_t pid, const std::string& variable) {
  return EnvironmentOf(pid).find('\0' + variable + '\0') != std::string::npos;
}

std::string CommandOf(pid_t pid) {
  std::string command = ReadText("/proc/" + std::to_string(pid) + "/cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  return command;
}

}  // namespace

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

bool HasSlurm() {
  for (const char* program : {"munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo"}) {
    if (InPath(program)) continue;
    const char* ci = std::getenv("CI");
    if (ci && std::string(ci) == "true") FAIL(program << " is not installed (scripts/setup.sh --tests)");
    WARN(program << " is not installed: left out (scripts/setup.sh --tests)");
    return false;
  }
  return true;
}

SlurmCluster::SlurmCluster(int node_seconds) {
  // A port may be taken between the look and the use: another try has others.
  for (int tries = 0; tries < 3; ++tries) {
    WriteConfiguration(node_seconds);
    for (const char* name : {"munged", "slurmctld", "n1", "n2"}) Start(name);
    if (Eventually(10, [&] { return Up(); })) return;
    EndDaemons();
  }
  std::string logs;
  for (const char* name : {"munged", "slurmctld", "n1", "n2"}) logs += ReadText(path(std::string(name) + ".log"));
  throw std::runtime_error("SLURM does not come up: " + logs);
}

SlurmCluster::~SlurmCluster() {
  Run({"scancel", "--user=" + UserName()});
  Eventually(10, [&] {
    std::string queue;
    Run({"squeue", "--noheader"}, &queue);
    return queue.empty();
  });
  EndDaemons();
  std::vector<std::string> left;
  Eventually(5, [&] {
    left.clear();
    for (const pid_t pid : AllProcesses()) {
      if (Carries(pid, "TMPDIR=" + path("tmp"))) left.push_back(std::to_string(pid) + ": " + CommandOf(pid));
    }
    return left.empty();
  });
  for (const auto& entry : fs::directory_iterator(path("tmp"))) left.push_back(entry.path().string());
  for (const std::string& what : left) {
    UNSCOPED_INFO(what);
    if (const pid_t pid = std::atoi(what.c_str()); pid > 0) ::kill(pid, SIGKILL);
  }
  CHECK(left.empty());
}

std::vector<std::string> SlurmCluster::Environment() const {
  std::vector<std::string> environment;
  for (const std::string& variable : InheritedEnvironment()) {
    if (!variable.starts_with("SLURM") && !variable.starts_with("SBATCH")) environment.push_back(variable);
  }
  SetVariable(environment, "PATH", kPath);
  SetVariable(environment, "SLURM_CONF", path("slurm.conf"));
  SetVariable(environment, "TMPDIR", path("tmp"));
  SetVariable(environment, "DS_LAUNCH", std::string(DS_BIN_DIR) + "/ds-launch");
  return environment;
}

/// What the defaults make minutes of is seconds here: how long SLURM waits after SIGTERM (KillWait), for a node
/// before a requeued job may start (cred_expire).
void SlurmCluster::WriteConfiguration(int node_seconds) {
  ::chmod(folder().c_str(), 0755);  // munge's clients must be able to reach its socket
  for (const char* name : {"tmp", "state", "spool-n1", "spool-n2"}) fs::create_directories(path(name));
  std::random_device random;
  std::string key;
  for (int i = 0; i < 256; ++i) key += static_cast<char>(random());
  fs::remove(path("munge.key"));
  WriteText(path("munge.key"), key);
  ::chmod(path("munge.key").c_str(), 0600);
  const std::string host = HostName(), user = UserName(), here = folder();
  std::string text = "ClusterName=ds\nSlurmctldHost=" + host + "(127.0.0.1)\nSlurmUser=" + user +
                     "\nSlurmdUser=" + user + "\nAuthType=auth/munge\nAuthInfo=socket=" + here +
                     "/munge.socket,cred_expire=5\nCredType=cred/munge\nSlurmctldPort=" + std::to_string(FreePort()) +
                     "\nSlurmdParameters=config_overrides\nStateSaveLocation=" + here +
                     "/state\nSlurmdSpoolDir=" + here + "/spool-%n\nSlurmctldPidFile=" + here +
                     "/slurmctld.pid\nSlurmdPidFile=" + here + "/slurmd-%n.pid\nSlurmctldLogFile=" + here +
                     "/slurmctld.log\nSlurmdLogFile=" + here + "/%n.log\n";
  text +=
      "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
      "SelectTypeParameters=CR_Core\nSwitchType=switch/none\nJobAcctGatherType=jobacct_gather/none\n"
      "AccountingStorageType=accounting_storage/none\nMpiDefault=none\nReturnToService=2\nJobRequeue=1\n"
      "KillWait=8\nMessageTimeout=10\nSlurmdTimeout=" +
      std::to_string(node_seconds) +
      "\nSlurmctldTimeout=10\nMinJobAge=300\nInactiveLimit=0\n"
      "UnkillableStepTimeout=20\nSchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1\n";
  for (const char* node : {"n1", "n2"}) {
    text += std::string("NodeName=") + node + " NodeHostname=" + host +
            " NodeAddr=127.0.0.1 Port=" + std::to_string(FreePort()) + " CPUs=8 RealMemory=1000\n";
  }
  WriteText(path("slurm.conf"), text + "PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n");
}

void SlurmCluster::Start(const std::string& daemon) {
  SpawnOptions options;
  if (daemon == "munged") {
    options.argv = {"munged",
                    "--foreground",
                    "--force",
                    "--key-file",
                    path("munge.key"),
                    "--socket",
                    path("munge.socket"),
                    "--pid-file",
                    path("munged.pid"),
                    "--log-file",
                    path("munged-own.log"),
                    "--seed-file",
                    path("munged.seed")};
  } else if (daemon == "slurmctld") {
    options.argv = {"slurmctld", "-D", "-c", "-f", path("slurm.conf")};
  } else {
    options.argv = {"slurmd", "-D", "-N", daemon, "-f", path("slurm.conf")};
  }
  options.environment = Environment();
  SetVariable(options.environment, "DS_TEST_NODE", daemon);
  options.working_directory = folder();
  const int log = ::open(path(daemon + "-output.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = log;
  options.new_session = true;
  // No parent-death signal: Catch runs on the main thread, and a killed test is found by what carries its TMPDIR.
  daemons_[daemon] = Spawn(options);
  ::close(log);
  if (daemon == "munged") {
    Eventually(10, [&] { return fs::exists(path("munge.socket")); });
  }
}

void SlurmCluster::Kill(const std::string& daemon) {
  ::kill(daemons_.at(daemon), SIGKILL);
  ::waitpid(daemons_.at(daemon), nullptr, 0);
  daemons_.erase(daemon);
}

void SlurmCluster::EndDaemons() {
  for (const char* name : {"n1", "n2", "slurmctld", "munged"}) {
    const auto found = daemons_.find(name);
    if (found == daemons_.end()) continue;
    ::kill(found->second, SIGTERM);
    if (!Eventually(10, [&] { return ::waitpid(found->second, nullptr, WNOHANG) == found->second; })) {
      ::kill(found->second, SIGKILL);
      ::waitpid(found->second, nullptr, 0);
    }
  }
  daemons_.clear();
}

bool SlurmCluster::Up() const {
  std::string states;
  Run({"sinfo", "--noheader", "--Node", "--format=%T"}, &states);
  return states == "idle\nidle\n";
}

int SlurmCluster::Run(const std::vector<std::string>& argv, std::string* output) const {
  static int count = 0;
  const std::string file = path("run-" + std::to_string(count++) + ".txt");
  SpawnOptions options;
  options.argv = argv;
  options.environment = Environment();
  options.working_directory = folder();
  const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = out;
  const pid_t pid = Spawn(options);
  ::close(out);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (output) *output = ReadText(file);
  fs::remove(file);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string SlurmCluster::Submit(const std::vector<std::string>& arguments) const {
  std::vector<std::string> argv{"sbatch", "--parsable", "--output=%j.out"};
  if (std::any_of(arguments.begin(), arguments.end(), [](const auto& a) { return a.starts_with("--array"); })) {
    argv.back() = "--output=%A_%a.out";
  }
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::string output;
  const int code = Run(argv, &output);
  INFO(output);
  REQUIRE(code == 0);
  return output.substr(0, output.find('\n'));
}

std::string SlurmCluster::Script(const std::string& name, const std::string& body) const {
  WriteText(path(name), "#!/bin/bash\n" + body);
  return path(name);
}

std::string SlurmCluster::Field(const std::string& job, const std::string& name) const {
  std::string text;
  if (Run({"scontrol", "--oneliner", "show", "job", job}, &text) != 0) return "";
  const size_t at = text.find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

std::string SlurmCluster::Await(const std::string& job, const std::vector<std::string>& states, double seconds) const {
  std::string state;
  const bool reached = Eventually(seconds, [&] {
    state = Field(job, "JobState");
    return std::find(states.begin(), states.end(), state) != states.end();
  });
  INFO("job " << job << " is " << state << ": " << Output(job));
  REQUIRE(reached);
  return state;
}

std::vector<pid_t> SlurmCluster::Processes(const std::string& executable, const std::string& node) const {
  std::vector<pid_t> found;
  for (const pid_t pid : AllProcesses()) {
    std::error_code error;
    if (fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).filename() != executable) continue;
    if (!Carries(pid, "TMPDIR=" + path("tmp"))) continue;
    if (node.empty() || Carries(pid, "SLURMD_NODENAME=" + node)) found.push_back(pid);
  }
  return found;
}

std::vector<pid_t> SlurmCluster::ProcessesOn(const std::string& node) const {
  std::vector<pid_t> found;
  for (const pid_t pid : AllProcesses()) {
    if (!Carries(pid, "TMPDIR=" + path("tmp"))) continue;
    // Steps' daemons have the environment of their slurmd, tasks that of their job.
    const auto own = daemons_.find(node);
    if (own != daemons_.end() && own->second == pid) continue;
    if (Carries(pid, "DS_TEST_NODE=" + node) || Carries(pid, "SLURMD_NODENAME=" + node)) found.push_back(pid);
  }
  return found;
}

}  // namespace ds::test
