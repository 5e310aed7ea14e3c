// Bootstrap `daemon`: jobs over resident agents end as all others do, leave the daemon and nothing else, and what does
// not fit is refused by name with exit code 3. Deadlines are those of docs/operations.md, with room for a busy machine.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/version.h"
#include "runtime/site/site.h"
#include "test/catch.h"
#include "test/fault/test_daemon.h"

using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::TestDaemon;
using ds::test::TestSite;
using ds::test::Text;

namespace {

/// The job is refused before anything runs: exit code 3, and the reason holds `words`.
void CheckRefused(LaunchSetting setting, const std::vector<std::string>& words) {
  LaunchedJob job(std::move(setting));
  REQUIRE(job.Wait(30) == 3);
  const std::string message = CauseOf(job.Summary(), "message");
  INFO(message);
  for (const std::string& word : words) CHECK(message.find(word) != std::string::npos);
  CHECK(CauseOf(job.Summary(), "kind") == "preflight");
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.1");
  CHECK(job.NothingLeft());
}

}  // namespace

TEST_CASE("Jobs over a daemon complete one after another and leave the daemon alone") {
  TestSite site;
  TestDaemon daemon(site);
  for (int round = 0; round < 2; ++round) {
    LaunchedJob job(daemon.Job(), 20);
    REQUIRE(job.Wait() == 0);
    CHECK(Text(job.Summary(), "status") == "completed");
    CHECK(job.Lines("metrics.jsonl").size() == 20);
    CHECK(job.NothingLeft());
    CHECK(daemon.NothingLeft());
  }
  daemon.Signal(SIGTERM);
  CHECK(daemon.Wait() == 0);
}

TEST_CASE("Two daemons, two nodes: one job") {
  TestSite site;
  TestDaemon first(site), second(site, {"127.0.0.2", "", "ds-agent", "", false});
  second.Start(first.port());
  LaunchSetting setting = first.Job();
  setting.hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
  LaunchedJob job(setting, 20);
  const int code = job.Wait();
  INFO(job.output());
  REQUIRE(code == 0);
  CHECK(Text(job.Summary(), "world") == "4");
  CHECK(job.NothingLeft());
  CHECK(first.NothingLeft());
  CHECK(second.NothingLeft());
}

TEST_CASE("kill -9 of a daemon's agent: 4, host and signal named") {
  TestSite site;
  TestDaemon daemon(site, {"127.0.0.1", "", "ds-agent", "", true});
  LaunchedJob job(daemon.Job());
  REQUIRE(job.WaitForStep(3));
  ::kill(job.Agent("127.0.0.1"), SIGKILL);
  REQUIRE(job.Wait() == 4);
  CHECK(CauseOf(job.Summary(), "kind") == "node_lost");
  CHECK(CauseOf(job.Summary(), "signal") == "9");
  CHECK(job.NothingLeft());
  CHECK(daemon.NothingLeft());
}

TEST_CASE("kill -9 of a launcher: the daemon's agent and its workers end within 2 s, and the daemon serves on") {
  TestSite site;
  TestDaemon daemon(site);
  {
    LaunchedJob job(daemon.Job());
    REQUIRE(job.WaitForStep(3));
    SECTION("") {}
    SECTION("a stopped agent too") { ::kill(job.Agent("127.0.0.1"), SIGSTOP); }
    job.Signal(SIGKILL);
    REQUIRE(job.Wait() == 137);
    CHECK(daemon.NothingLeft(6));
    CHECK(daemon.Leftovers() == std::vector<std::string>{});
  }
  LaunchedJob next(daemon.Job(), 5);
  CHECK(next.Wait() == 0);
}

TEST_CASE("Ctrl-C over a daemon: a checkpoint, 130, nothing left") {
  TestSite site;
  TestDaemon daemon(site);
  LaunchedJob job(daemon.Job());
  REQUIRE(job.WaitForStep(3));
  job.Signal(SIGINT);
  REQUIRE(job.Wait() == 130);
  CHECK(job.HasEvent("checkpoint"));
  CHECK(daemon.NothingLeft());
}

TEST_CASE("A daemon's end is its jobs' end: 4, nothing orphaned, and one that is started again serves on") {
  TestSite site;
  TestDaemon daemon(site);
  LaunchedJob job(daemon.Job());
  REQUIRE(job.WaitForStep(3));
  SECTION("killed") {
    daemon.Signal(SIGKILL);
    CHECK(daemon.Wait() == 137);
  }
  SECTION("stopped by systemd, or restarted") {
    daemon.Signal(SIGTERM);
    CHECK(daemon.Wait() == 0);
  }
  REQUIRE(job.Wait() == 4);
  CHECK(CauseOf(job.Summary(), "kind") == "node_lost");
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.1");
  CHECK(job.NothingLeft());
  CHECK(daemon.NothingLeft(6));
  CHECK(daemon.Leftovers() == std::vector<std::string>{});
  daemon.Start(daemon.port());
  LaunchedJob next(daemon.Job(), 5);
  CHECK(next.Wait() == 0);
}

TEST_CASE("A daemon that is not there is named, with exit code 3") {
  TestSite site;
  TestDaemon daemon(site);
  daemon.Signal(SIGTERM);
  daemon.Wait();
  CheckRefused(daemon.Job(), {"no daemon listens there", "127.0.0.1:" + std::to_string(daemon.port())});
}

TEST_CASE("A daemon of another site identity is named, and gets no credentials") {
  TestSite site, other;
  TestDaemon theirs(other);
  TestDaemon ours(site, {"127.0.0.1", "", "ds-agent", "", false});
  LaunchSetting setting = ours.Job();
  setting.arguments.back() = std::to_string(theirs.port());
  CheckRefused(setting, {"another site identity", "another user's"});
  CHECK(theirs.log().find("agent") == theirs.log().find("agent --daemon"));  // it started none
}

TEST_CASE("A daemon with the certificate of another node is named") {
  TestSite site;
  TestDaemon daemon(site, {"127.0.0.1", "", "ds-agent", "127.0.0.2", true});
  CheckRefused(daemon.Job(), {"the identity of another node", "127.0.0.2.node.deepshard"});
}

TEST_CASE("A daemon whose certificate has expired is named, with the date") {
  TestSite site;
  TestDaemon daemon(site);
  SECTION("while it runs") {
    // It loaded a good one; what it shows now is another's that has ended.
    daemon.Signal(SIGTERM);
    daemon.Wait();
    site.Reissue("nodes/127.0.0.1/node", ds::SiteNodeName("127.0.0.1"), -1);
    ds::test::LaunchSetting setting;
    setting.program = "ds-agent";
    setting.arguments = {"--daemon", "--config", "daemon.yaml"};
    setting.shell_prelude =
        "umask 077; printf 'listen: 127.0.0.1\\nport: 0\\nca_certificate: " + site.file("nodes/127.0.0.1/ca.crt") +
        "\\ncertificate: " + site.file("nodes/127.0.0.1/node.crt") +
        "\\nprivate_key: " + site.file("nodes/127.0.0.1/node.key") + "\\n' > daemon.yaml";
    LaunchedJob refused(setting);
    CHECK(refused.Wait() == 3);
    CHECK(refused.output().find("expired on 20") != std::string::npos);
    CHECK(refused.output().find("--make-identity") != std::string::npos);
  }
  SECTION("the launcher's own") {
    site.Reissue("launcher", ds::kSiteLauncherName, -1);
    LaunchedJob job(daemon.Job());
    CHECK(job.Wait() == 3);
    CHECK(job.output().find("launcher.crt: expired on 20") != std::string::npos);
  }
}

TEST_CASE("A daemon of another user is named, both users") {
  TestSite site;
  TestDaemon daemon(site);
  LaunchSetting setting = daemon.Job();
  setting.hosts = "somebody-else@127.0.0.1 slots=2\n";
  CheckRefused(setting, {"the daemon serves ", "not somebody-else"});
}

TEST_CASE("A daemon that is busy is named, and free again when its job has ended") {
  TestSite site;
  TestDaemon daemon(site);
  LaunchedJob job(daemon.Job());
  REQUIRE(job.WaitForStep(1));
  CheckRefused(daemon.Job(), {"busy", "1 of at most 1 jobs"});
  job.Signal(SIGINT);
  REQUIRE(job.Wait() == 130);
  REQUIRE(daemon.NothingLeft());
  LaunchedJob next(daemon.Job(), 5);
  CHECK(next.Wait() == 0);
}

TEST_CASE("A daemon whose port another has says so, and what to do") {
  TestSite site;
  TestDaemon daemon(site);
  const ds::test::TemporaryFolder folder;
  const std::string file = folder.path() + "/daemon.yaml", node = site.file("nodes/127.0.0.1"),
                    port = std::to_string(daemon.port());
  std::ofstream(file) << "listen: 127.0.0.1\nport: " << port << "\nca_certificate: " << node
                      << "/ca.crt\ncertificate: " << node << "/node.crt\nprivate_key: " << node << "/node.key\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  LaunchSetting setting;
  setting.program = "ds-agent";
  setting.arguments = {"--daemon", "--config", file};
  LaunchedJob second(setting);
  CHECK(second.Wait() == 1);
  INFO(second.output());
  CHECK(second.output().find("cannot listen on 127.0.0.1:" + port + ": Address already in use: another daemon") !=
        std::string::npos);
  CHECK(second.output().find("write another `port`") != std::string::npos);
}

TEST_CASE("An older daemon is refused by name and version, both shown") {
  TestSite site;
  TestDaemon daemon(site, {"127.0.0.1", "", "test-fault-old-agent", "", true});
  CheckRefused(daemon.Job(), {"127.0.0.1", "build 0.0.9", "build " + std::string(ds::BuildVersion())});
}

TEST_CASE("An older agent is refused by name and version, both shown") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=2\n";
  setting.arguments = {"fake.yaml",
                       "--hostfile",
                       "hosts",
                       "--bootstrap",
                       "local",
                       "--agent",
                       std::string(DS_BIN_DIR) + "/test-fault-old-agent"};
  CheckRefused(setting, {"127.0.0.1", "build 0.0.9", "build " + std::string(ds::BuildVersion())});
}

TEST_CASE("A daemon without jobs ends after idle_seconds") {
  TestSite site;
  TestDaemon daemon(site, {"127.0.0.1", "idle_seconds: 2\n", "ds-agent", "", true});
  LaunchedJob job(daemon.Job(), 5);
  REQUIRE(job.Wait() == 0);
  CHECK(daemon.Wait(15) == 0);
  CHECK(daemon.log().find("idle_seconds") != std::string::npos);
}

TEST_CASE("ds-report over a daemon") {
  TestSite site;
  TestDaemon daemon(site);
  LaunchSetting setting;
  setting.program = "ds-report";
  setting.hosts = "127.0.0.1 slots=1\n";
  setting.arguments = {"--hostfile",    "hosts",         "--bootstrap",   "daemon",
                       "--daemon-site", site.SiteFile(), "--daemon-port", std::to_string(daemon.port())};
  LaunchedJob report(setting);
  CHECK(report.Wait() == 0);
  CHECK(daemon.NothingLeft());
}
