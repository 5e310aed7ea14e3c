// No secret of a job is found in a command line, an environment, a log or the run directory; memory of the programs
// that hold one is closed to other processes of the user and to core dumps.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/attach.h"
#include "proto/deepshard.pb.h"
#include "runtime/base/file.h"
#include "test/catch.h"
#include "test/fault/test_daemon.h"

namespace {

namespace fs = std::filesystem;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::TemporaryFolder;
using ds::test::TestDaemon;
using ds::test::TestSite;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

/// Lines of a PEM key but for its frame: what would give it away wherever it stood.
std::vector<std::string> LinesOfKey(const std::string& pem) {
  std::vector<std::string> lines;
  std::istringstream text(pem);
  for (std::string line; std::getline(text, line);) {
    if (line.size() > 16 && line[0] != '-') lines.push_back(line);
  }
  REQUIRE(lines.size() >= 2);
  return lines;
}

/// Where one of `secrets` is found: command lines and environments of every process, files below `folders`.
std::vector<std::string> Found(const std::vector<std::string>& secrets, const std::vector<std::string>& folders) {
  std::vector<std::string> found;
  const auto look = [&](const fs::path& path) {
    const std::string text = ReadAll(path);
    for (const std::string& secret : secrets) {
      if (text.find(secret) != std::string::npos) found.push_back(path.string() + " holds " + secret);
    }
  };
  for (const auto& entry : fs::directory_iterator("/proc")) {
    if (std::atoi(entry.path().filename().c_str()) <= 0) continue;
    look(entry.path() / "cmdline");
    look(entry.path() / "environ");
  }
  std::error_code ignored;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
      if (entry.is_regular_file(ignored)) look(entry.path());
    }
  }
  return found;
}

/// An agent in whose place a script keeps what it is handed, in `kept`, and passes it on to the agent.
std::string TellingAgent(const TemporaryFolder& folder, const std::string& kept) {
  const std::string path = folder.path() + "/telling-agent";
  std::ofstream(path) << "#!/bin/sh\numask 077\ntee '" << kept << "' | '" << DS_BIN_DIR << "/ds-agent' \"$@\"\n";
  ::chmod(path.c_str(), 0700);
  return path;
}

const std::vector<std::string> kMarks = {"PRIVATE KEY", "BEGIN CERTIFICATE"};

}  // namespace

TEST_CASE("A job's key is in no command line, environment, log or run directory") {
  TemporaryFolder folder;
  const std::string kept = folder.path() + "/kept";
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=2\n";
  setting.arguments = {"fake.yaml", "--hostfile", "hosts", "--agent", TellingAgent(folder, kept)};
  setting.environment = {{"DS_LOG", "debug"}};
  LaunchedJob job(setting);
  REQUIRE(job.WaitForStep(3));
  deepshard::v1::Bootstrap bootstrap;
  REQUIRE(bootstrap.ParseFromString(ReadAll(kept).substr(ds::FrameBootstrap("").size())));
  std::vector<std::string> secrets = LinesOfKey(bootstrap.private_key());
  secrets.insert(secrets.end(), kMarks.begin(), kMarks.end());
  const std::string run = job.run_directory(), job_folder = run.substr(0, run.find("/runs/"));
  CHECK(Found(secrets, {job_folder}) == std::vector<std::string>{});
  job.Signal(SIGTERM);
  REQUIRE(job.Wait() == 143);
  CHECK(Found(secrets, {job_folder}) == std::vector<std::string>{});
  CHECK(job.output().find(secrets[0]) == std::string::npos);
  fs::remove(kept);
}

TEST_CASE("A site's keys are in no command line, environment, log or run directory of jobs over a daemon") {
  TestSite site;
  std::vector<std::string> secrets = kMarks;
  for (const char* key : {"launcher.key", "nodes/127.0.0.1/node.key", "ca.key"}) {
    for (const std::string& line : LinesOfKey(ReadAll(site.file(key)))) secrets.push_back(line);
  }
  TestDaemon daemon(site);
  LaunchSetting setting = daemon.Job();
  setting.environment = {{"DS_LOG", "debug"}};
  LaunchedJob job(setting);
  REQUIRE(job.WaitForStep(3));
  const std::string run = job.run_directory(), job_folder = run.substr(0, run.find("/runs/"));
  CHECK(Found(secrets, {job_folder}) == std::vector<std::string>{});
  job.Signal(SIGKILL);
  job.Wait();
  CHECK(daemon.NothingLeft(6));
  CHECK(Found(secrets, {job_folder}) == std::vector<std::string>{});
  for (const std::string& secret : secrets) CHECK(daemon.log().find(secret) == std::string::npos);
}

TEST_CASE("Memory of launcher and agent is closed to other processes of their user") {
  // Root may read everything: it plays an ordinary user here, with programs where that one may run them.
  TemporaryFolder folder;
  const bool root = ::geteuid() == 0;
  const std::string bin = folder.path() + "/bin", tmp = folder.path() + "/tmp";
  fs::create_directories(bin);
  fs::create_directories(tmp);
  for (const char* program : {"ds-launch", "ds-agent"})
    fs::copy_file(std::string(DS_BIN_DIR) + "/" + program, bin + "/" + program);
  for (const std::string& path : {folder.path(), bin}) ::chmod(path.c_str(), 0755);
  if (root) REQUIRE(::chown(tmp.c_str(), 65534, 65534) == 0);
  if (root && std::system("setpriv --reuid=65534 --clear-groups true > /dev/null 2>&1") != 0) {
    WARN("setpriv is not there, or may not change the user: not tested as root");
    return;
  }
  // The worker looks at its agent, and at the agent's parent, as any program of the user could.
  std::ofstream(folder.path() + "/spy")
      << "#!/bin/sh\n"
         "for pid in $(cat pids); do\n"
         "  cat /proc/$pid/environ > /dev/null 2>&1 && echo \"read environ of $pid\"\n"
         "  head -c 1 /proc/$pid/mem 2>&1 | grep -v -i 'denied' | grep -v -i 'permitted'\n"
         "  stat -c \"owner %u\" /proc/$pid/environ\n"
         "done\n";
  ::chmod((folder.path() + "/spy").c_str(), 0755);
  const std::string launch =
      std::string("cd '") + tmp + "' && env -u DS_DEBUGGABLE TMPDIR='" + tmp + "' " +
      (root ? "setpriv --reuid=65534 --clear-groups " : "") + "'" + bin +
      "/ds-launch' --num-gpus 1 -- sh -c 'ps -o pid= -o comm= -u $(id -u) | awk \"/ds-(launch|agent)/ "
      "{print \\$1}\" > pids; sh ../spy' > out 2>&1";
  const int status = std::system(launch.c_str());
  const std::string out = ReadAll(tmp + "/out");
  INFO(out);
  CHECK(status == 0);
  std::istringstream pids(ReadAll(tmp + "/pids"));
  int count = 0;
  for (std::string pid; pids >> pid;) ++count;
  CHECK(count >= 2);
  CHECK(out.find("read environ") == std::string::npos);
  size_t closed = 0;
  for (size_t at = 0; (at = out.find("owner 0", at)) != std::string::npos; ++at) ++closed;
  CHECK(closed >= 2);  // the kernel gives such files to root
}
