// Nothing outlives a job: what each level of containment guarantees, and what it does not.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/cgroup.h"
#include "runtime/base/json.h"
#include "runtime/base/process.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::Value;
using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

namespace {

namespace fs = std::filesystem;

const std::string kEscape = std::string(DS_BIN_DIR) + "/test-fault-escape";

/// A job of one rank, on a host of its own, that leaves processes of these kinds.
LaunchSetting Escaping(const std::string& level, std::vector<std::string> kinds) {
  LaunchSetting setting;
  setting.hosts = "127.0.0.2 slots=1\n";
  setting.arguments = {"--hostfile", "hosts", "--set", "launch.contain=" + level, "--", kEscape};
  setting.arguments.insert(setting.arguments.end(), kinds.begin(), kinds.end());
  return setting;
}

/// As the node's report tells; empty: it is not there.
std::string ContainedBy(const LaunchedJob& job) {
  std::ifstream file(job.run_directory() + "/report/127.0.0.2.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.empty()) return "";
  const Value report = ds::ParseJson(text, "report");
  return Text(*report.Find("containment"), "in_force");
}

/// Waits until the escaping program has begun. False, with a message, where the node does not allow the level.
bool Begun(LaunchedJob& job, const std::string& level) {
  const bool ready = Eventually(20, [&] {
    return job.Log(0).find("ready") != std::string::npos ||
           job.output().find("the node does not allow it") != std::string::npos;
  });
  INFO(job.output());
  REQUIRE(ready);
  if (job.output().find("the node does not allow it") != std::string::npos) {
    CHECK(job.Wait() == 3);
    WARN("not tested: this node does not allow containment " << level << "\n" << job.output());
    return false;
  }
  CHECK(ContainedBy(job) == level);
  return true;
}

pid_t ParentOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end = text.rfind(')');
  return end == std::string::npos ? -1 : std::atoi(text.c_str() + end + 4);
}

/// The folder that the job's programs have as TMPDIR.
std::string TemporaryOf(const LaunchedJob& job) {
  return fs::path(job.run_directory()).parent_path().parent_path().parent_path().string() + "/tmp";
}

/// What a later agent on the node does: here that of ds-report.
void RunLaterAgent(const LaunchedJob& job) {
  ds::SpawnOptions options;
  options.argv = {std::string(DS_BIN_DIR) + "/ds-report", "--json"};
  options.environment = ds::InheritedEnvironment();
  ds::SetVariable(options.environment, "TMPDIR", TemporaryOf(job));
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  options.stdout_fd = null;
  const pid_t pid = ds::Spawn(options);
  ::close(null);
  int status = -1;
  REQUIRE(Eventually(20, [&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  CHECK(status == 0);
}

const std::vector<std::string> kEverything = {"setsid", "orphan", "deaf", "daemon", "stopped"};
std::vector<std::string> Everything(const std::string& level) {
  std::vector<std::string> kinds = kEverything;
  if (level != "process") kinds.push_back("hop");  // the kernel finds it; who looks for it by its number may not
  return kinds;
}

}  // namespace

TEST_CASE("What programs leave behind ends with the job, at every level") {
  for (const std::string level : {"process", "cgroup", "namespace"}) {
    CAPTURE(level);
    std::vector<std::string> kinds = Everything(level);
    kinds.insert(kinds.begin(), "--exit");
    LaunchedJob job(Escaping(level, kinds));
    if (!Begun(job, level)) continue;
    REQUIRE(job.Wait() == 0);
    CHECK(job.NothingLeft(0));  // at once: ds-launch ends last
  }
}

TEST_CASE(
    "kill -9 of an agent, its keeper, the launcher, or both at once: nothing is left within 2 s, at every level") {
  for (const std::string level : {"process", "cgroup", "namespace"}) {
    for (const std::string killed : {"agent", "keeper", "launcher", "both"}) {
      CAPTURE(level, killed);
      LaunchedJob job(Escaping(level, Everything(level)));
      if (!Begun(job, level)) break;
      const pid_t agent = job.Agent("127.0.0.2");
      if (killed == "both") job.Signal(SIGSTOP);  // it cannot tidy up between the two
      if (killed == "agent" || killed == "both") ::kill(agent, SIGKILL);
      if (killed == "keeper") ::kill(ParentOf(agent), SIGKILL);
      if (killed == "launcher" || killed == "both") job.Signal(SIGKILL);
      const int code = job.Wait();
      const bool launcher_lives = killed == "agent" || killed == "keeper";
      CHECK(code == (launcher_lives ? 4 : 137));
      if (launcher_lives) CHECK(CauseOf(job.Summary(), "signal") == "9");
      if (!job.NothingLeft(2)) FAIL_CHECK("left: " << job.Leftovers()[0]);
    }
  }
}

TEST_CASE("kill -9 of launcher, keeper and agent at once: what each level guarantees") {
  for (const std::string level : {"process", "cgroup", "namespace"}) {
    CAPTURE(level);
    LaunchedJob job(Escaping(level, kEverything));
    if (!Begun(job, level)) continue;
    const pid_t agent = job.Agent("127.0.0.2"), keeper = ParentOf(agent);
    REQUIRE(keeper != job.pid());
    const std::string keeper_name = "/proc/" + std::to_string(keeper) + "/comm";
    std::string name;
    std::ifstream(keeper_name) >> name;
    REQUIRE(name == "ds-agent-keeper");
    job.Signal(SIGSTOP);  // none of them sees another die
    ::kill(keeper, SIGSTOP);
    ::kill(agent, SIGKILL);
    ::kill(keeper, SIGKILL);
    job.Signal(SIGKILL);
    CHECK(job.Wait() == 137);
    const auto processes = [&] {
      std::vector<std::string> left = job.Leftovers();
      std::erase_if(left, [](const std::string& what) { return !what.starts_with("process"); });
      return left.size();
    };
    if (level == "namespace") CHECK(Eventually(2, [&] { return processes() == 0; }));
    if (level != "namespace") {
      // The worker itself dies with its agent; what it started is left.
      CHECK(Eventually(2, [&] { return processes() == kEverything.size(); }));
    }
    if (level == "process") {  // nobody knows them any more
      for (pid_t pid : job.Workers()) ::kill(pid, SIGKILL);
    }
    RunLaterAgent(job);  // of the same user: ends what is in control groups whose keepers are dead, and removes folders
    if (!job.NothingLeft(2)) FAIL_CHECK("left: " << job.Leftovers()[0]);
  }
}

TEST_CASE("auto takes a level that the node allows, says which, and leaves no control group") {
  LaunchedJob job(Escaping("auto", {"--exit", "daemon"}));
  REQUIRE(job.Wait() == 0);
  const std::string level = ContainedBy(job);
  CHECK((level == "cgroup" || level == "process"));
  CHECK(job.NothingLeft());
  for (const ds::CgroupFolder& group : ds::CgroupFolders("")) {
    const auto ours = [&] {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(group.path, error)) {
        const std::string name = entry.path().filename().string();
        if (name.find("." + std::to_string(job.Agent("127.0.0.2")) + ".") != std::string::npos) return true;
      }
      return false;
    };
    CHECK(!ours());
  }
}

TEST_CASE("A control group that cannot be entered: auto goes on without, cgroup is refused with exit code 3") {
  ds::test::TemporaryFolder fake;  // no control group at all
  LaunchSetting setting = Escaping("auto", {"--exit", "daemon"});
  setting.environment = {{"DS_CGROUP", fake.path()}};
  {
    LaunchedJob job(setting);
    REQUIRE(job.Wait() == 0);
    CHECK(ContainedBy(job) == "process");
    CHECK(job.NothingLeft(0));
  }
  setting = Escaping("cgroup", {"--exit", "daemon"});
  setting.environment = {{"DS_CGROUP", fake.path()}};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 3);
  const std::string message = CauseOf(job.Summary(), "message");
  CHECK(message.find("containment on 127.0.0.2: launch.contain is cgroup, and the node does not allow it") == 0);
  CHECK(message.find(fake.path()) != std::string::npos);
  CHECK(fs::is_empty(fake.path()));
  CHECK(job.NothingLeft());
}

TEST_CASE("Without root: a namespace, or a reason why not; control groups that belong to others are not touched") {
  if (!ds::test::OthersMayRun()) return;
  for (const std::string level : {"process", "cgroup", "namespace", "auto"}) {
    CAPTURE(level);
    std::vector<std::string> kinds = kEverything;
    kinds.insert(kinds.begin(), "--exit");
    LaunchSetting setting = Escaping(level, kinds);
    setting.shell_prelude =
        "chmod -R a+rwX . && set -- setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \"$@\"";
    LaunchedJob job(setting);
    const int code = job.Wait();
    INFO(job.output());
    CHECK((code == 0 || (code == 3 && job.output().find("the node does not allow it") != std::string::npos)));
    if (level == "process" || level == "auto") CHECK(code == 0);
    if (code != 0) WARN("without root this node does not allow " << level << "\n" << job.output());
    CHECK(job.NothingLeft(0));
  }
}

TEST_CASE("In a namespace programs see their own numbers, and the node's user theirs") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.2 slots=2\n";
  setting.arguments = {
      "--hostfile", "hosts", "--set", "launch.contain=namespace", "--", "sh", "-c",
      // Rank 0 alone, and once its line is out: the agent's end is everybody's.
      "[ $RANK = 0 ] || exec sleep 60; echo $$ $(ls /proc | grep -c '^[0-9]') $(readlink /proc/self/exe | wc -c); "
      "sleep 1; kill -TERM 1; sleep 60"};
  LaunchedJob job(setting);
  const int code = job.Wait();
  if (code == 3) {
    WARN("not tested: this node does not allow a namespace\n" << job.output());
    return;
  }
  INFO(job.Log(0));
  int self = 0, processes = 0;
  std::istringstream(job.Log(0)) >> self >> processes;
  CHECK(self > 1);
  CHECK(self < 1000);
  CHECK(processes < 20);
  // Process 1 is the agent, whose SIGTERM ends its node: a program may do that here as elsewhere.
  CHECK(code == 4);
  CHECK(CauseOf(job.Summary(), "signal") == "15");
  CHECK(job.Agent("127.0.0.2") > 1);
  CHECK(job.NothingLeft());
}
