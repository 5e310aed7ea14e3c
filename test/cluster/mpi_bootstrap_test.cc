// Jobs whose agents mpirun brings up. The job, the screen and the endings are those of any other bootstrap; deadlines
// are the documented ones (docs/operations.md) with room for a busy machine.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "test/catch.h"
#include "test/cluster/needs.h"
#include "test/fault/launched_job.h"

namespace fs = std::filesystem;
using ds::Value;
using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::Installed;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::TemporaryFolder;
using ds::test::Text;

namespace {

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// An `ssh` for mpirun whose nodes are all this machine; "bad..." does not exist, "silent..." never answers.
class Nodes {
 public:
  Nodes() {
    std::ofstream(path())
        << "#!/bin/sh\n"
           "while :; do case \"$1\" in -l|-p|-o) shift 2;; -*) shift;; *) break;; esac; done\n"
           "host=$1; shift\n"
           "case $host in\n"
           "  bad*) echo \"ssh: Could not resolve hostname $host: Name or service not known\" >&2; exit 255;;\n"
           "  silent*) exec sleep 1000;;\n"
           "esac\n"
           "mkdir -p "
           "\"$(dirname \"$0\")/$host\"  # daemons of one node only share a folder\n"
           "OMPI_MCA_orte_tmpdir_base=\"$(dirname \"$0\")/$host\" exec sh -c \"$*\"\n";
    ::chmod(path().c_str(), 0700);
  }
  std::string path() const { return folder_.path() + "/ssh"; }

 private:
  TemporaryFolder folder_;
};

LaunchSetting OverMpi(std::string hosts, const Nodes& nodes, std::map<std::string, std::string> environment = {}) {
  LaunchSetting setting;
  setting.arguments = {"fake.yaml", "--hostfile", "hosts", "--bootstrap", "mpi"};
  setting.hosts = std::move(hosts);
  setting.environment = std::move(environment);
  setting.environment["OMPI_MCA_plm_rsh_agent"] = setting.environment["PRTE_MCA_plm_ssh_agent"] = nodes.path();
  return setting;
}

constexpr char kHere[] = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n";
constexpr char kApart[] = "node-a slots=1\nnode-b slots=1\n";

/// Processes of the job by the name of their program.
std::vector<pid_t> ProcessesOf(const LaunchedJob& job, const std::vector<std::string>& programs) {
  std::vector<pid_t> found;
  const std::string tmpdir = fs::path(job.run_directory()).parent_path().parent_path().parent_path().string() + "/tmp";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string program = fs::read_symlink(entry.path() / "exe", error).filename();
    if (std::find(programs.begin(), programs.end(), program) == programs.end()) continue;
    if (('\0' + ReadAll(entry.path() / "environ")).find(std::string(1, '\0') + "TMPDIR=" + tmpdir) == std::string::npos)
      continue;
    found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

pid_t Mpirun(const LaunchedJob& job) {
  const std::vector<pid_t> found = ProcessesOf(job, {"mpirun", "orterun", "prterun"});
  REQUIRE(found.size() == 1);
  return found[0];
}

/// Nothing is left but what daemons of mpirun that were killed may leave of their own.
bool NothingOfOursLeft(const LaunchedJob& job, double seconds) {
  return Eventually(seconds, [&] {
    const std::vector<std::string> left = job.Leftovers();
    return std::all_of(left.begin(), left.end(),
                       [](const std::string& what) { return what.find("/tmp/ompi.") != std::string::npos; });
  });
}

bool Reaches(const LaunchedJob& job, int step) {
  const bool reached = job.WaitForStep(step, 30);
  if (!reached) WARN(job.output());
  return reached;
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("mpi: a job over two agents is the same job, and no secret shows") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  LaunchedJob job(OverMpi(kHere, nodes), 300);
  REQUIRE(Reaches(job, 3));
  CHECK(ProcessesOf(job, {"ds-mpi-agent"}).size() == 3);  // one a node, and mpirun's guard
  CHECK(job.Agents().size() == 2);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    CHECK(!Contains(ReadAll(entry.path() / "cmdline"), "PRIVATE KEY"));
    CHECK(!Contains(ReadAll(entry.path() / "environ"), "PRIVATE KEY"));
  }
  const fs::path tmpdir = fs::path(job.run_directory()).parent_path().parent_path().parent_path() / "tmp";
  for (const auto& entry : fs::recursive_directory_iterator(tmpdir)) {
    if (entry.is_regular_file()) CHECK(!Contains(ReadAll(entry.path()), "PRIVATE KEY"));
  }
  const std::string environment = ReadAll("/proc/" + std::to_string(job.Worker(3)) + "/environ");
  CHECK(!Contains(environment, "OMPI_"));  // a worker's own MPI must not take it for a rank of this mpirun
  CHECK(!Contains(environment, "PMIX_"));
  REQUIRE(job.Wait(30) == 0);
  CHECK(job.NothingLeft());
  CHECK(job.Lines("metrics.jsonl").size() == 300);
  CHECK(Text(job.Summary(), "status") == "completed");
  CHECK(job.Log(3).find("rank 3 of 4, local rank 1, ") == 0);
  CHECK(!Contains(job.output(), "---"));  // mpirun's own words are not the job's
}

TEST_CASE("mpi: the first rank to fail gives its exit code") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  LaunchedJob job(OverMpi(kHere, nodes, {{"DS_TEST_FAULTS", "2@5=exit:7"}}));
  REQUIRE(job.Wait() == 7);
  CHECK(job.NothingLeft());
  CHECK(CauseOf(job.Summary(), "rank") == "2");
  CHECK(CauseOf(job.Summary(), "host") == "127.0.0.2");
}

TEST_CASE("mpi: SIGTERM to ds-launch: workers stop, 143") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  LaunchedJob job(OverMpi(kHere, nodes));
  REQUIRE(Reaches(job, 3));
  job.Signal(SIGTERM);
  REQUIRE(job.Wait() == 143);
  CHECK(job.NothingLeft());
  CHECK(Text(job.Summary(), "status") == "interrupted");
}

TEST_CASE("mpi: kill -9 of an agent: 4, host and signal named, its workers and their children gone") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  LaunchedJob job(OverMpi(kApart, nodes, {{"DS_TEST_FAULTS", "1@2=child"}}));
  REQUIRE(Reaches(job, 5));
  ::kill(job.Agent("node-b"), SIGKILL);
  REQUIRE(job.Wait() == 4);
  CHECK(job.NothingLeft());
  CHECK(CauseOf(job.Summary(), "kind") == "node_lost");
  CHECK(CauseOf(job.Summary(), "host") == "node-b");
  CHECK(CauseOf(job.Summary(), "signal") == "9");
}

TEST_CASE("mpi: kill -9 of mpirun: 4, mpirun named, nothing left") {
  if (!Installed("mpirun")) return;
  for (const char* hosts : {kHere, kApart}) {
    Nodes nodes;
    LaunchedJob job(OverMpi(hosts, nodes));
    REQUIRE(Reaches(job, 3));
    ::kill(Mpirun(job), SIGKILL);
    REQUIRE(job.Wait() == 4);
    CHECK((hosts == kHere ? job.NothingLeft(8) : NothingOfOursLeft(job, 8)));
    CHECK(CauseOf(job.Summary(), "kind") == "node_lost");
    INFO(job.output());
    CHECK(Contains(CauseOf(job.Summary(), "message"), "mpirun"));
  }
}

TEST_CASE("mpi: kill -9 of mpirun's daemon on a node: 4, the node named") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  LaunchedJob job(OverMpi(kApart, nodes));
  REQUIRE(Reaches(job, 3));
  const pid_t agent = job.Agent("node-b");
  auto parent = [](pid_t pid) {
    std::istringstream stat(ReadAll("/proc/" + std::to_string(pid) + "/stat"));
    std::string word;
    pid_t found = -1;
    stat >> word >> word >> word >> found;
    return found;
  };
  ::kill(parent(parent(agent)), SIGKILL);  // mpirun's daemon, ds-mpi-agent, ds-agent
  REQUIRE(job.Wait() == 4);
  CHECK(NothingOfOursLeft(job, 8));
  CHECK(CauseOf(job.Summary(), "host") == "node-b");
}

TEST_CASE("mpi: kill -9 of ds-launch: nothing is left, also while a node does not answer") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  {
    LaunchedJob job(OverMpi(kApart, nodes));
    REQUIRE(Reaches(job, 3));
    job.Signal(SIGKILL);
    REQUIRE(job.Wait() == 137);
    CHECK(NothingOfOursLeft(job, 10));  // mpirun gives its daemons 3 s
  }
  LaunchedJob job(OverMpi("127.0.0.1 slots=1\nsilent slots=1\n", nodes));
  REQUIRE(Eventually(10, [&] { return !ProcessesOf(job, {"sleep"}).empty(); }));
  job.Signal(SIGKILL);
  REQUIRE(job.Wait() == 137);
  CHECK(NothingOfOursLeft(job, 15));
}

TEST_CASE(
    "mpi: a host that cannot be reached: 3, named with ssh's words; one that does not answer, after join_seconds") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  {
    LaunchedJob job(OverMpi("127.0.0.1 slots=1\nbad-host slots=1\n", nodes));
    REQUIRE(job.Wait() == 3);
    CHECK(job.NothingLeft());
    CHECK(CauseOf(job.Summary(), "host") == "bad-host");
    CHECK(Contains(CauseOf(job.Summary(), "message"), "Could not resolve hostname bad-host"));
  }
  LaunchSetting setting = OverMpi("127.0.0.1 slots=1\nsilent slots=1\n", nodes);
  setting.arguments.insert(setting.arguments.end(), {"--set", "launch.join_seconds=2"});
  LaunchedJob job(setting);
  REQUIRE(job.Wait(25) == 3);
  CHECK(job.NothingLeft());
  CHECK(Contains(CauseOf(job.Summary(), "message"), "did not join within 2 s"));
}

TEST_CASE("mpi: what mpirun cannot do is refused before anything starts") {
  if (!Installed("mpirun")) return;
  Nodes nodes;
  const auto refused = [&](const std::string& hosts, std::map<std::string, std::string> environment) {
    LaunchedJob job(OverMpi(hosts, nodes, std::move(environment)));
    CHECK(job.Wait() == 2);
    CHECK(job.NothingLeft());
    return job.output();
  };
  CHECK(Contains(refused("alice@node-a slots=1\n", {}), "mpirun takes no user names"));
  CHECK(Contains(refused("[fe80::1] slots=1\n", {}), "mpirun takes no IPv6 addresses"));
  CHECK(Contains(refused(kHere, {{"PATH", "/nonexistent"}}), "needs Open MPI's mpirun"));
  TemporaryFolder other;
  std::ofstream(other.path() + "/mpirun") << "#!/bin/sh\necho HYDRA build details:\n";
  ::chmod((other.path() + "/mpirun").c_str(), 0700);
  CHECK(Contains(refused(kHere, {{"PATH", other.path() + ":/usr/bin:/bin"}}), "another: `HYDRA build details:`"));
}
