#include "test/cluster/slurm_cluster.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/process.h"
#include "runtime/base/random.h"
#include "runtime/base/socket.h"
#include "test/catch.h"
#include "test/cluster/needs.h"

namespace fs = std::filesystem;

namespace ds::test {
namespace {

/// Its exit code; -1: it did not end within `seconds`.
int RunProgram(const std::vector<std::string>& argv, const std::string& configuration, double seconds) {
  SpawnOptions options;
  options.argv = argv;
  options.environment = InheritedEnvironment();
  SetVariable(options.environment, "SLURM_CONF", configuration);
  SetVariable(options.environment, "PATH", std::string(std::getenv("PATH")) + ":/usr/sbin:/sbin");
  const pid_t pid = Spawn(options);
  int status = 0;
  if (Eventually(seconds, [&] { return ::waitpid(pid, &status, WNOHANG) == pid; }))
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return -1;
}

bool Alive(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace

bool SlurmCluster::Possible() {
  if (::geteuid() != 0) {
    WARN("skipped: SLURM's daemons need root here");
    return false;
  }
  return Installed("srun") && Installed("slurmctld") && Installed("slurmd") && Installed("munged");
}

SlurmCluster::SlurmCluster() {
  const std::string& folder = folder_.path();
  ::chmod(folder.c_str(), 0755);
  for (const char* name : {"/munge", "/state", "/spool-n1", "/spool-n2", "/tmp-n1", "/tmp-n2"}) {
    fs::create_directory(folder + name);
    ::chmod((folder + name).c_str(), 0755);
  }
  std::ofstream(folder + "/munge.key") << RandomHex(512);
  ::chmod((folder + "/munge.key").c_str(), 0400);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::ofstream(configuration()) << "ClusterName=test\n"
                                    "SlurmctldHost="
                                 << host
                                 << "(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nSlurmctldPort=" << FreeTcpPort()
                                 << "\nAuthType=auth/munge\nAuthInfo=socket=" << folder
                                 << "/munge/socket\nCredType=cred/munge\nStateSaveLocation=" << folder
                                 << "/state\nSlurmdSpoolDir=" << folder << "/spool-%n\nTmpFS=" << folder
                                 << "/tmp-%n\nSlurmctldPidFile=" << folder << "/slurmctld.pid\nSlurmdPidFile=" << folder
                                 << "/slurmd-%n.pid\nSlurmctldLogFile=" << folder
                                 << "/slurmctld.log\nSlurmdLogFile=" << folder
                                 << "/slurmd-%n.log\n"
                                    "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
                                    "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n"
                                    "SwitchType=switch/none\nMpiDefault=none\nReturnToService=2\nKillWait=5\n"
                                    "SlurmdParameters=config_overrides\n"
                                 << "NodeName=n1 NodeHostname=" << host
                                 << " NodeAddr=127.0.0.1 CPUs=4 Port=" << FreeTcpPort()
                                 << "\nNodeName=n2 NodeHostname=" << host
                                 << " NodeAddr=127.0.0.1 CPUs=4 Port=" << FreeTcpPort()
                                 << "\nPartitionName=test Nodes=n1,n2 Default=YES State=UP\n";
  REQUIRE(RunProgram({"munged", "--force", "--key-file=" + folder + "/munge.key",
                      "--socket=" + folder + "/munge/socket", "--pid-file=" + folder + "/munged.pid",
                      "--log-file=" + folder + "/munged.log", "--seed-file=" + folder + "/munge.seed"},
                     configuration(), 20) == 0);
  REQUIRE(RunProgram({"slurmctld", "-f", configuration()}, configuration(), 20) == 0);
  for (const char* node : {"n1", "n2"})
    REQUIRE(RunProgram({"slurmd", "-f", configuration(), "-N", node}, configuration(), 20) == 0);
  REQUIRE(Eventually(40, [&] {
    return RunProgram({"sh", "-c", "test $(sinfo -h -N -t idle -o %N | sort -u | wc -l) = 2"}, configuration(), 10) ==
           0;
  }));
}

SlurmCluster::~SlurmCluster() {
  std::vector<pid_t> daemons;
  for (const char* name : {"slurmd-n1", "slurmd-n2", "slurmctld", "munged"}) {
    pid_t pid = -1;
    std::ifstream(folder_.path() + "/" + name + ".pid") >> pid;
    if (pid <= 1) continue;
    ::kill(pid, SIGTERM);
    daemons.push_back(pid);
  }
  for (pid_t pid : daemons) {
    if (!Eventually(10, [&] { return !Alive(pid); })) ::kill(pid, SIGKILL);
  }
}

}  // namespace ds::test
