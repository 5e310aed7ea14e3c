// What happens to ds-launch itself and to its files: killed at once, stopped for long, its directory gone, its disk
// full.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace {

using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Text;

/// A program that runs for a minute.
LaunchSetting Sleeper() {
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
  setting.arguments = {"--hostfile", "hosts", "--", "sleep", "60"};
  return setting;
}

}  // namespace

TEST_CASE("ds-launch killed before its agents have joined leaves nothing") {
  for (const int milliseconds : {5, 20, 40, 60, 80, 100, 130, 160, 200, 300}) {
    LaunchedJob job(Sleeper());
    // A moment of its life, not a wait for something: whatever it does by then, the same is promised.
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    job.Signal(SIGKILL);
    CHECK(job.Wait() == 128 + SIGKILL);
    INFO(milliseconds << " ms after its start");
    const bool nothing = job.NothingLeft(2);
    for (const std::string& what : job.Leftovers()) UNSCOPED_INFO(what);
    CHECK(nothing);
  }
}

TEST_CASE("A launcher that was stopped for longer than its lease says that it was") {
  LaunchSetting setting = Sleeper();
  setting.arguments.insert(setting.arguments.begin(), {"--set", "launch.lease_seconds=2"});
  LaunchedJob job(setting);
  REQUIRE(Eventually(20, [&] { return job.Workers().size() >= 4; }));
  job.Signal(SIGSTOP);
  REQUIRE(Eventually(30, [&] { return job.Agents().empty(); }));  // they took it for lost
  job.Signal(SIGCONT);
  CHECK(job.Wait() == 4);
  INFO(job.output());
  const std::string message = CauseOf(job.Summary(), "message");
  CHECK(message.find("ds-launch itself was stopped or starved for ") != std::string::npos);
  CHECK(message.find("launch.lease_seconds (2 s)") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A run directory that somebody removes ends its job, not with 0") {
  LaunchedJob job(Sleeper());
  const std::string run = job.run_directory();
  REQUIRE(Eventually(20, [&] { return job.Workers().size() >= 4; }));
  std::filesystem::remove_all(run);
  CHECK(job.Wait() == 1);
  INFO(job.output());
  CHECK(job.output().find(run + " was removed or moved while the job ran") != std::string::npos);
  CHECK(job.output().find("failed (exit code 1)") != std::string::npos);
  CHECK(!std::filesystem::exists(run));
  CHECK(job.NothingLeft());
}

TEST_CASE("A job that a full disk ends has a summary: room was kept for it") {
  if (::geteuid() != 0) {
    WARN("not tested: mounting a file system needs root");
    return;
  }
  ds::test::TemporaryFolder folder;
  if (std::system(("mount -t tmpfs -o size=4m none " + folder.path()).c_str()) != 0) {
    WARN("not tested: no file system can be mounted here");
    return;
  }
  {
    LaunchSetting setting;
    setting.shared_output = true;
    setting.arguments = {
        "--num-gpus", "1",  "--output", folder.path(),
        "--",         "sh", "-c",       "while :; do echo 'a line that fills the disk with others of its kind'; done"};
    LaunchedJob job(setting);
    CHECK(job.Wait(120) == 1);
    INFO(job.output().substr(job.output().size() > 2000 ? job.output().size() - 2000 : 0));
    CHECK(Text(job.Summary(), "status") == "failed");
    CHECK(CauseOf(job.Summary(), "message").find("the run directory cannot be written: ") == 0);
    CHECK(CauseOf(job.Summary(), "message").find("No space left on device") != std::string::npos);
    CHECK(job.Lines("events.jsonl").size() > 2);
    CHECK(job.NothingLeft());
  }
  CHECK(std::system(("umount " + folder.path()).c_str()) == 0);
}

TEST_CASE("Programs that cannot print have failed; a reader that went away is no failure") {
  const std::string bin = std::string(DS_BIN_DIR) + "/";
  const auto run = [](const std::string& command) {
    const int status = std::system(("exec 2> /dev/null; " + command).c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  for (const char* command :
       {"ds-launch --help", "ds-launch --version", "ds-report --help", "ds-report --version", "ds-report",
        "ds-worker --help", "ds-worker --version", "ds-agent --help", "ds-agent --version", "ds-agent --daemon --help",
        "ds-convert --help", "ds-convert data --help", "ds-generate --help", "ds-bench --help", "ds-bench io --help"}) {
    INFO(command);
    CHECK(run(bin + command + " > /dev/full") == 1);
    CHECK(run(bin + command + " > /dev/null") == 0);
  }
  // The reader closes its end before the program begins to write.
  for (const char* command : {"ds-launch --help", "ds-launch --version", "ds-report --version", "ds-report"}) {
    INFO(command);
    const std::string pipe =
        "fifo=$(mktemp -u /tmp/ds-fault-fifo-XXXXXX); mkfifo $fifo; exec 3<> $fifo 4> $fifo 3>&-; ";
    CHECK(run(pipe + "rm $fifo; exec 3>&-; " + bin + command + " >&4") == 0);
  }
}

TEST_CASE("An unknown option is named, with the nearest that there is, by every program") {
  const std::string bin = std::string(DS_BIN_DIR) + "/";
  const ds::test::TemporaryFolder folder;
  struct Case {
    const char *command, *says;
  };
  for (const Case& c : {Case{"ds-launch --hostfle x", "unknown option --hostfle; the nearest is --hostfile"},
                        Case{"ds-report --hostfle x", "unknown option --hostfle; the nearest is --hostfile"},
                        Case{"ds-generate --chekpoint x", "unknown option --chekpoint; the nearest is --checkpoint"},
                        Case{"ds-convert data --outptu x", "unknown option --outptu; the nearest is --output"},
                        Case{"ds-convert daat", "unknown command daat; the nearest is data"},
                        Case{"ds-bench all --ouput x", "unknown option --ouput; the nearest is --output"},
                        Case{"ds-bench oi", "unknown command oi; the nearest is io"},
                        Case{"ds-worker --sett a.b=c job.yaml", "unknown option --sett; the nearest is --set"},
                        Case{"ds-worker --agnet --rank", "unknown option --agnet; the nearest is --agent"},
                        Case{"ds-agent --attach", "unknown option --attach; the nearest is --attached"},
                        Case{"ds-agent --daemon --confg x", "unknown option --confg; the nearest is --config"}}) {
    const std::string out = folder.path() + "/out";
    const int status = std::system((bin + c.command + " > " + out + " 2>&1 < /dev/null").c_str());
    std::ifstream file(out);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    INFO(c.command << "\n" << text);
    CHECK(WEXITSTATUS(status) == 2);
    CHECK(text.find(c.says) != std::string::npos);
    CHECK(text.size() < 300);  // not the whole help
  }
}
