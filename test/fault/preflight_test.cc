// Nodes that cannot run the job: exit code 3, the node named.
#include "test/catch.h"
#include "test/fault/launched_job.h"

using ds::test::CauseOf;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;

TEST_CASE("Too few open files: said at preflight") {
  LaunchSetting setting;
  setting.hosts = "127.0.0.3 slots=20\n";
  setting.arguments = {"--hostfile", "hosts", "--", "true"};
  setting.shell_prelude = "ulimit -n 128";
  LaunchedJob job(setting);
  REQUIRE(job.Wait() == 3);
  CHECK(CauseOf(job.Summary(), "kind") == "preflight");
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.3");
  CHECK(CauseOf(job.Summary(), "message").find("open files") != std::string::npos);
  CHECK(job.NothingLeft());
}

TEST_CASE("ds-report shows several nodes and whether they differ") {
  LaunchSetting setting;
  setting.program = "ds-report";
  setting.hosts = "127.0.0.1 slots=1\n127.0.0.2 slots=1\n";
  setting.arguments = {"--hostfile", "hosts"};
  LaunchedJob report(setting);
  REQUIRE(report.Wait() == 0);
  CHECK(report.output().find("127.0.0.2") != std::string::npos);
  CHECK(report.output().find("The nodes do not differ.") != std::string::npos);
  CHECK(report.NothingLeft());
}
