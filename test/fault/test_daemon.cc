#include "test/fault/test_daemon.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "launcher/control/credentials.h"
#include "launcher/control/site_identity.h"
#include "runtime/base/file.h"
#include "runtime/base/process.h"
#include "runtime/site/site.h"
#include "test/catch.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

}  // namespace

TestSite::TestSite() {
  MakeSiteIdentity(folder_.path() + "/id", {{"127.0.0.1", "", {0}}, {"127.0.0.2", "", {0}}, {"10.98.0.2", "", {0}}});
}

void TestSite::Reissue(const std::string& pair, const std::string& name, int days) const {
  JobAuthority authority(ReadFile(file("ca.crt")), ReadFile(file("ca.key")));
  const Credentials credentials = authority.Issue(name, days);
  std::ofstream(file(pair + ".crt")) << credentials.certificate;
  std::ofstream(file(pair + ".key")) << credentials.private_key;
}

TestDaemon::TestDaemon(const TestSite& site, DaemonSetting setting) : site_(site), setting_(std::move(setting)) {
  fs::create_directories(folder_.path() + "/tmp");
  if (setting_.start) Start();
}

void TestDaemon::Start(int port) {
  const std::string& folder = folder_.path();
  const std::string node = site_.file("nodes/" + (setting_.identity_of.empty() ? setting_.host : setting_.identity_of));
  std::ofstream(folder + "/daemon.yaml") << "listen: " << setting_.host << "\nport: " << port
                                         << "\nca_certificate: " << node << "/ca.crt\ncertificate: " << node
                                         << "/node.crt\nprivate_key: " << node << "/node.key\n"
                                         << setting_.more;
  ::chmod((folder + "/daemon.yaml").c_str(), 0600);
  SpawnOptions options;
  options.argv = {std::string(DS_BIN_DIR) + "/" + setting_.program, "--daemon", "--config", folder + "/daemon.yaml"};
  if (!setting_.net_namespace.empty()) {
    options.argv.insert(options.argv.begin(), {"nsenter", "--net=" + setting_.net_namespace});
  }
  options.environment = InheritedEnvironment();
  SetVariable(options.environment, "TMPDIR", folder + "/tmp");
  if (::geteuid() != 0) SetVariable(options.environment, "DS_DEBUGGABLE", "1");  // as for LaunchedJob
  SetVariable(options.environment, "DS_WORKER_PROGRAM", std::string(DS_BIN_DIR) + "/test-fault-worker");
  const int out = ::open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  options.stdout_fd = options.stderr_fd = out;
  options.new_session = true;
  pid_ = Spawn(options);
  ::close(out);
  const std::string before = "listening on " + setting_.host + ":";
  const bool listens = Eventually(20, [&] {
    const std::string text = log();
    const size_t at = text.find(before);
    if (at == std::string::npos) return ::kill(pid_, 0) != 0;
    port_ = std::stoi(text.substr(at + before.size()));
    return true;
  });
  INFO(log());
  REQUIRE((listens && port_ > 0));
}

TestDaemon::~TestDaemon() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  NothingLeft(3);
}

void TestDaemon::Signal(int signal) const { ::kill(pid_, signal); }

int TestDaemon::Wait(double seconds) {
  int status = 0;
  const bool ended = Eventually(seconds, [&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  INFO(log());
  REQUIRE(ended);
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string TestDaemon::log() const { return ReadAll(folder_.path() + "/log"); }

std::vector<std::string> TestDaemon::Leftovers() const {
  std::vector<std::string> left;
  const std::string marker = std::string(1, '\0') + "TMPDIR=" + folder_.path() + "/tmp" + '\0';
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == pid_) continue;
    if (('\0' + ReadAll(entry.path() / "environ")).find(marker) == std::string::npos) continue;
    std::string command = ReadAll(entry.path() / "cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    left.push_back("process " + std::to_string(pid) + ": " + command);
  }
  for (const auto& entry : fs::directory_iterator(folder_.path() + "/tmp")) left.push_back(entry.path().string());
  return left;
}

LaunchSetting TestDaemon::Job(std::vector<std::string> more) const {
  LaunchSetting setting;
  setting.hosts = setting_.host + " slots=2\n";
  setting.arguments = {"fake.yaml",     "--hostfile",     "hosts",         "--bootstrap",        "daemon",
                       "--daemon-site", site_.SiteFile(), "--daemon-port", std::to_string(port_)};
  setting.arguments.insert(setting.arguments.end(), more.begin(), more.end());
  return setting;
}

}  // namespace ds::test
