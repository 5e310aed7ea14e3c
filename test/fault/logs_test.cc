// Logs: whole lines with host and rank, floods, odd bytes, what a dying rank said last, rotation, the ranks shown.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;

namespace {

std::string File(const LaunchedJob& job, const std::string& name) {
  std::ifstream file(job.run_directory() + "/logs/" + name, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

}  // namespace

TEST_CASE("Lines of ranks are never spliced on the screen, and carry host and rank") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
  // Each line in two writes, so that lines of several ranks are under way at once.
  setting.arguments = {"--hostfile",
                       "hosts",
                       "--",
                       "sh",
                       "-c",
                       "i=0; while [ $i -lt 300 ]; do printf 'half %s ' $RANK; printf 'and half %s %d\\n' $RANK $i; "
                       "i=$((i + 1)); done"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  std::map<std::string, int> next;  // by prefix
  std::istringstream output(job.output());
  for (std::string line; std::getline(output, line);) {
    if (!line.starts_with('[')) continue;
    const size_t end = line.find("] ");
    const std::string prefix = line.substr(1, end - 1), rank = prefix.substr(prefix.find(' ') + 1);
    CHECK(prefix == (rank < "2" ? "127.0.0.1 " : "127.0.0.2 ") + rank);
    CHECK(line.substr(end + 2) == "half " + rank + " and half " + rank + " " + std::to_string(next[prefix]++));
  }
  REQUIRE(next.size() == 4);
  for (const auto& [prefix, lines] : next) CHECK(lines == 300);
}

TEST_CASE("Lines of 1 MiB, NUL bytes and bytes that are no UTF-8 are kept as they are") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus", "1",  "--",
      "sh",         "-c", "head -c 1048576 /dev/zero | tr '\\0' y; echo; printf 'a\\0\\377\\376b\\033[31m\\r\\n\\n'"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  const std::string odd = std::string(
      "a\0\xff\xfe"
      "b\x1b[31m\r\n",
      12);
  CHECK((job.Log(0) == std::string(1048576, 'y') + "\n" + odd + "\n"));
  CHECK(job.output().find("[localhost 0] " + odd) != std::string::npos);  // no terminal: as they are
}

TEST_CASE("NO_COLOR: the screen drops programs' colors, the log keeps them") {
  LaunchSetting setting;
  setting.environment = {{"NO_COLOR", "1"}};
  setting.arguments = {"--num-gpus", "1", "--", "printf", "\\033[31mred\\033[m\\n"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  CHECK(job.output().find("[localhost 0] red\n") != std::string::npos);
  CHECK(job.Log(0) == "\x1b[31mred\x1b[m\n");
}

TEST_CASE("What a killed rank had begun to say is kept") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "1", "--", "sh", "-c", "echo whole; printf 'half a li'; kill -9 $$"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 137);
  CHECK(job.Log(0) == "whole\nhalf a li\n");
  CHECK(job.output().find("    whole\n    half a li\n") != std::string::npos);  // the last lines
  CHECK(job.NothingLeft());
}

TEST_CASE("A flood is cut, what was cut is said, and the reason at its end is kept") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus",
                       "2",
                       "--tee",
                       "none",
                       "--set",
                       "launch.log_lines_per_second=100",
                       "--",
                       "sh",
                       "-c",
                       "[ $RANK = 1 ] && exec sleep 1000; "
                       "timeout 2.5 yes nonsense; echo 'the reason' >&2; exit 3"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait(30) == 3);
  std::istringstream log(job.Log(0));
  int passed = 0, notices = 0;
  std::string last;
  for (std::string line; std::getline(log, line); last = line) {
    if (line == "nonsense") ++passed;
    if (line.starts_with("[ds-agent: ") &&
        line.ends_with(" lines dropped in the last second: more than launch.log_lines_per_second, 100]"))
      ++notices;
  }
  CHECK(passed >= 2000);        // 20 seconds' worth at once
  CHECK(passed <= 2000 + 800);  // and 100 a second, on a machine that may be slow
  CHECK(notices >= 2);
  CHECK(last == "the reason");
  CHECK(job.output().find("    the reason\n") != std::string::npos);
  CHECK(job.HasEvent("log_dropped"));
  CHECK(job.output().find("\n[localhost 0]") == std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("A flood without end: Ctrl-C ends the job all the same") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus",        "2",  "--tee", "none", "--set", "launch.log_rotate=1MiB", "--set",
                       "launch.log_keep=2", "--", "yes"};
  LaunchedJob job(setting);
  REQUIRE(Eventually(15, [&] { return job.HasEvent("log_dropped"); }));
  job.Signal(SIGINT);
  REQUIRE(job.Wait(10) == 130);
  CHECK(job.NothingLeft());
}

TEST_CASE("Logs are rotated at launch.log_rotate, launch.log_keep older ones stay") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus",        "1",  "--tee", "none", "--set", "launch.log_rotate=4KiB", "--set",
                       "launch.log_keep=2", "--", "seq",   "1000", "9999"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  const std::string all = File(job, "rank-0.log.2") + File(job, "rank-0.log.1") + File(job, "rank-0.log");
  std::string expected;
  for (int i = 1000; i <= 9999; ++i) expected += std::to_string(i) + "\n";
  CHECK(expected.ends_with(all));
  CHECK(File(job, "rank-0.log.1").size() <= 4096);
  CHECK(File(job, "rank-0.log.1").size() > 4096 - 5);
  CHECK(File(job, "rank-0.log.3").empty());
}

TEST_CASE("--tee and --log-ranks choose ranks") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "4", "--tee", "1,3", "--log-ranks", "0-1", "--", "sh", "-c", "echo rank $RANK"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 0);
  for (int rank : {0, 1, 2, 3}) {
    const std::string line = "rank " + std::to_string(rank) + "\n";
    CHECK((job.output().find(line) != std::string::npos) == (rank == 1 || rank == 3));
    CHECK(File(job, "rank-" + std::to_string(rank) + ".log") == (rank < 2 ? line : ""));
    CHECK(std::filesystem::exists(job.run_directory() + "/logs/rank-" + std::to_string(rank) + ".log") == (rank < 2));
  }
}

TEST_CASE("The last lines are those of the attempt that failed") {
  LaunchSetting setting;
  setting.arguments = {
      "--num-gpus",        "1",  "--tee", "none", "--set",
      "launch.restarts=1", "--", "sh",    "-c",   "[ $TORCHELASTIC_RESTART_COUNT = 0 ] && echo of the first; exit 5"};
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 5);
  CHECK(job.Log(0) == "of the first\n");
  CHECK(job.output().find("of the first") == std::string::npos);
}

TEST_CASE("A terminal that is stopped, or a pager that reads no further, does not stop the job") {
  LaunchSetting setting;
  setting.arguments = {"--num-gpus", "2",  "--set", "launch.lease_seconds=2", "--set", "launch.suspect_seconds=1",
                       "--",         "sh", "-c"};
  SECTION("a pipe that nobody reads") {
    setting.shell_prelude = "mkfifo pipe; sleep 8 < pipe & exec > pipe";
    setting.arguments.push_back("timeout 5 yes; exit 4");
    LaunchedJob job(setting);
    REQUIRE(job.Wait(30) == 4);
    CHECK(!job.HasEvent("node_lost"));
    CHECK(job.NothingLeft(10));
  }
  SECTION("a pipe that nobody reads, for both streams: the run's files are there, and a signal ends it") {
    setting.shell_prelude = "mkfifo pipe; sleep 20 < pipe & exec > pipe 2>&1";
    setting.arguments.push_back("yes | head -n 50000");
    LaunchedJob job(setting);
    REQUIRE(Eventually(20, [&] { return std::filesystem::exists(job.run_directory() + "/summary.json"); }));
    CHECK(ds::test::Text(job.Summary(), "status") == "completed");
    job.Signal(SIGTERM);
    REQUIRE(job.Wait(15) == 0);  // 5 s after the signal
    CHECK(job.NothingLeft(25));  // the reader that reads nothing is left until then
  }
  SECTION("Ctrl-S, Ctrl-Q, Ctrl-C") {
    setting.terminal = true;
    setting.arguments.push_back("yes");
    LaunchedJob job(setting);
    REQUIRE(Eventually(15, [&] { return !job.Log(0).empty(); }));
    job.Type("\x13");
    REQUIRE(!Eventually(6, [&] { return job.HasEvent("node_lost") || job.HasEvent("end"); }));
    job.Type("\x11");
    job.Type("\x03");
    REQUIRE(job.Wait(15) == 130);
    CHECK(job.NothingLeft());
  }
}
