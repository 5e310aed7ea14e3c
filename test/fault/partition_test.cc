// A network that is cut and heals, between real programs: what was given up does not come back.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "test/catch.h"
#include "test/fault/test_daemon.h"

namespace {

using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::TestDaemon;
using ds::test::TestSite;

bool Run(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

/// The launcher's namespace and a node's, joined by a link.
class Link {
 public:
  Link() {
    const std::string id = std::to_string(::getpid());
    launcher_ = "dspl" + id;
    node_ = "dspn" + id;
    made_ = ::geteuid() == 0 && Run("ip netns add " + launcher_) && Run("ip netns add " + node_) &&
            Run("ip -n " + launcher_ + " link add veth0 type veth peer name veth1 netns " + node_) &&
            Run("ip -n " + launcher_ + " addr add 10.98.0.1/24 dev veth0") &&
            Run("ip -n " + node_ + " addr add 10.98.0.2/24 dev veth1") &&
            Run("ip -n " + launcher_ + " link set lo up") && Run("ip -n " + node_ + " link set lo up") && Set(true) &&
            Run("ip -n " + node_ + " link set veth1 up") && Run("nsenter --net=" + launcher() + " true");
  }
  ~Link() {
    Run("ip netns del " + launcher_);
    Run("ip netns del " + node_);
  }
  bool made() const { return made_; }
  bool Set(bool up) const { return Run("ip -n " + launcher_ + " link set veth0 " + (up ? "up" : "down")); }
  std::string launcher() const { return "/run/netns/" + launcher_; }
  std::string node() const { return "/run/netns/" + node_; }

 private:
  std::string launcher_, node_;
  bool made_ = false;
};

}  // namespace

TEST_CASE("A link that is cut and healed: the node was lost, its agent ends, and nothing is written any more") {
  Link link;
  if (!link.made()) {
    WARN("no network namespaces here (root, iproute2 and util-linux are needed): skipped");
    CHECK(!std::getenv("CI"));
    return;
  }
  TestSite site;
  ds::test::DaemonSetting at_node;
  at_node.host = "10.98.0.2";
  at_node.net_namespace = link.node();
  TestDaemon daemon(site, at_node);
  LaunchSetting setting = daemon.Job({"--set", "launch.lease_seconds=8", "--set", "launch.suspect_seconds=4"});
  setting.shell_prelude = "exec nsenter --net=" + link.launcher() + " \"$@\"";
  LaunchedJob job(setting);
  REQUIRE(job.WaitForStep(3));
  CHECK(daemon.Leftovers().size() >= 3);  // an agent and its workers

  REQUIRE(link.Set(false));
  REQUIRE(job.Wait(40) == 4);  // nothing acknowledged for 3 s
  CHECK(CauseOf(job.Summary(), "kind") == "node_lost");
  CHECK(CauseOf(job.Summary(), "host") == "10.98.0.2");
  const size_t steps = job.Lines("metrics.jsonl").size(), events = job.Lines("events.jsonl").size();

  REQUIRE(link.Set(true));
  CHECK(daemon.NothingLeft(20));  // lease_seconds at most
  CHECK(daemon.Leftovers() == std::vector<std::string>{});
  CHECK(job.Lines("metrics.jsonl").size() == steps);
  CHECK(job.Lines("events.jsonl").size() == events);
  LaunchSetting again = daemon.Job();
  again.shell_prelude = setting.shell_prelude;
  LaunchedJob next(again, 5);
  CHECK(next.Wait(30) == 0);  // the healed node serves other jobs
  CHECK(next.NothingLeft());
}
