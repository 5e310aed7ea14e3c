#include "test/cluster_ssh/sshd.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/base/process.h"
#include "runtime/base/socket.h"
#include "test/catch.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

constexpr char kServer[] = "/usr/sbin/sshd";

bool Ci() {
  const char* ci = std::getenv("CI");
  return ci && std::string(ci) == "true";
}

void MakeKey(const std::string& path) {
  REQUIRE(RunProgram({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path}) == 0);
}

pid_t SpawnTo(const std::vector<std::string>& argv, const std::string& log) {
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  SpawnOptions options;
  options.argv = argv;
  options.environment = InheritedEnvironment();
  options.stdout_fd = options.stderr_fd = out;
  options.new_group = true;
  options.parent_death_signal = SIGKILL;
  const pid_t pid = Spawn(options);
  ::close(out);
  return pid;
}

}  // namespace

bool HasOpenSsh() {
  std::string output;
  const bool all =
      ::access(kServer, X_OK) == 0 && ::access("/usr/bin/ssh", X_OK) == 0 && ::access("/usr/bin/ssh-keygen", X_OK) == 0;
  if (all) return true;
  if (Ci()) FAIL("OpenSSH (openssh-server, openssh-client) is not installed");
  WARN("skipped: OpenSSH (openssh-server, openssh-client) is not installed");
  return false;
}

int RunProgram(const std::vector<std::string>& argv, std::string* output) {
  TemporaryFolder folder;
  const pid_t pid = SpawnTo(argv, folder.path() + "/out");
  int status = 0;
  ::waitpid(pid, &status, 0);
  const std::string text = ReadText(folder.path() + "/out");
  if (output) *output = text;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code != 0) UNSCOPED_INFO(argv[0] << ": " << text);
  return code;
}

void WriteText(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  try {
    return std::string((std::istreambuf_iterator<char>(file)), {});
  } catch (const std::ios_base::failure&) {  // of a process in /proc that ended meanwhile
    return "";
  }
}

Sshd::Sshd(SshdSetting setting) {
  if (::getuid() == 0) fs::create_directories("/run/sshd");  // where sshd of root puts its privileges away
  fs::create_directory(home());
  MakeKey(path("host_key"));
  MakeKey(path("user_key"));
  user_key_ = ReadText(path("user_key.pub"));
  WriteText(path("authorized_keys"), user_key_);
  port_ = FreeTcpPort();
  WriteText(path("sshd_config"), setting.options +
                                     "\n"
                                     "ListenAddress " +
                                     setting.address + ":" + std::to_string(port_) +
                                     "\n"
                                     "HostKey " +
                                     path("host_key") +
                                     "\n"
                                     "AuthorizedKeysFile " +
                                     path("authorized_keys") +
                                     "\n"
                                     "PidFile none\n"
                                     "StrictModes no\n"
                                     "UsePAM no\n"
                                     "PasswordAuthentication no\n"
                                     "KbdInteractiveAuthentication no\n"
                                     "PermitRootLogin yes\n"
                                     "UseDNS no\n"
                                     "SetEnv HOME=" +
                                     home() +
                                     "\n"
                                     "AcceptEnv TMPDIR DS_WORKER_PROGRAM DS_LOG\n");  // marks of LaunchedJob
  Configure("Port " + std::to_string(port_));
  Configure("IdentityFile " + path("user_key"));
  Configure("IdentitiesOnly yes\nGlobalKnownHostsFile /dev/null\nUserKnownHostsFile " + path("known_hosts"));
  Configure("StrictHostKeyChecking yes\nSendEnv TMPDIR DS_WORKER_PROGRAM DS_LOG");
  std::string known;
  for (const std::string& host : setting.known) known += KnownHost(host);
  WriteText(path("known_hosts"), known);
  std::vector<std::string> argv = {kServer, "-D", "-e", "-f", path("sshd_config")};
  if (!setting.net_namespace.empty()) {
    const std::vector<std::string> enter = {"nsenter", "--net=" + setting.net_namespace};
    argv.insert(argv.begin(), enter.begin(), enter.end());
  }
  pid_ = SpawnTo(argv, path("sshd.log"));
  const bool listens = Eventually(10, [&] { return Log().find("Server listening") != std::string::npos; });
  INFO(Log());
  REQUIRE(listens);
}

Sshd::~Sshd() {
  // Sessions have groups of their own; those whose clients are cut off would wait for them for hours.
  std::istringstream sessions(
      ReadText("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
  for (pid_t session; sessions >> session;) ::kill(session, SIGKILL);
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<std::string> Sshd::Options() const { return {"--bootstrap", "ssh", "--ssh-config", path("ssh_config")}; }

std::string Sshd::KnownHost(const std::string& host) const {
  const std::string key = ReadText(path("host_key.pub"));
  return "[" + host + "]:" + std::to_string(port_) + " " + key.substr(0, key.rfind(' ')) + "\n";
}

void Sshd::Configure(const std::string& line) { std::ofstream(path("ssh_config"), std::ios::app) << line << "\n"; }

void Sshd::Admit(const Sshd& other) { WriteText(path("authorized_keys"), user_key_ + other.user_key_); }

}  // namespace ds::test
