// What SLURM writes, read: lists of nodes, counts, allocations, the ends of tasks.
#include <signal.h>

#include <map>
#include <string>

#include "launcher/bootstrap/slurm_allocation.h"
#include "launcher/bootstrap/slurm_environment.h"
#include "launcher/bootstrap/slurm_nodelist.h"
#include "launcher/bootstrap/slurm_report.h"
#include "runtime/base/captured.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "test/catch.h"

namespace ds {
namespace {

std::string Nodes(const std::string& list) { return Join(ExpandNodeList(list, "SLURM_JOB_NODELIST"), " "); }

template <class Call>
std::string UsageErrorOf(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

std::string NodesError(const std::string& list) {
  return UsageErrorOf([&] { ExpandNodeList(list, "NODES"); });
}

/// A world of variables; commands by their words.
struct World {
  std::map<std::string, std::string> variables{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
  std::map<std::string, std::string> answers;
  std::vector<std::string> asked;

  SlurmAllocation Read() {
    return ReadSlurmAllocation(SlurmWorld{[this](const char* name) {
                                            auto found = variables.find(name);
                                            return found == variables.end() ? nullptr : found->second.c_str();
                                          },
                                          [this](const std::vector<std::string>& argv) -> std::optional<std::string> {
                                            asked.push_back(Join(argv, " "));
                                            auto found = answers.find(asked.back());
                                            if (found == answers.end()) return std::nullopt;
                                            return found->second;
                                          }});
  }
  std::string Error() {
    return UsageErrorOf([&] { Read(); });
  }
};

std::string SlotsOf(const SlurmAllocation& allocation) {
  std::string text;
  for (const HostSlots& host : allocation.hosts) text += host.host + ":" + std::to_string(host.slots.size()) + " ";
  return text;
}

}  // namespace

TEST_CASE("SLURM's lists of nodes: every notation that scontrol knows, in its order") {
  CHECK(Nodes("n1") == "n1");
  CHECK(Nodes("n[1-3]") == "n1 n2 n3");
  CHECK(Nodes("n[1-3,7,10-11]") == "n1 n2 n3 n7 n10 n11");
  CHECK(Nodes("gpu[08-11]") == "gpu08 gpu09 gpu10 gpu11");
  CHECK(Nodes("gpu[007-009,100]") == "gpu007 gpu008 gpu009 gpu100");
  CHECK(Nodes("a[9-10]") == "a9 a10");
  CHECK(Nodes("login,gpu[1-2],big-3") == "login gpu1 gpu2 big-3");
  CHECK(Nodes("r[1-2]n[3-4]") == "r1n3 r1n4 r2n3 r2n4");
  CHECK(Nodes("r[1-2]-ib") == "r1-ib r2-ib");
  CHECK(Nodes("[1-2]x") == "1x 2x");
  CHECK(Nodes("n1.cluster.example") == "n1.cluster.example");
  CHECK(ExpandNodeList("n[1-65536]", "").size() == 65536);
}

TEST_CASE("SLURM's lists of nodes: what is wrong is told with its place") {
  CHECK_THAT(NodesError(""), Catch::Matchers::Contains("NODES:1: expected a node's name"));
  CHECK_THAT(NodesError("n1,"), Catch::Matchers::Contains("NODES:4: expected a node's name"));
  CHECK_THAT(NodesError("n[1-"), Catch::Matchers::Contains("NODES:5: expected a number"));
  CHECK_THAT(NodesError("n[]"), Catch::Matchers::Contains("NODES:3: expected a number"));
  CHECK_THAT(NodesError("n[3-1]"), Catch::Matchers::Contains("backwards"));
  CHECK_THAT(NodesError("n[1"), Catch::Matchers::Contains("expected `,` or `]`"));
  CHECK_THAT(NodesError("n[1-2]]"), Catch::Matchers::Contains("unexpected character"));
  CHECK_THAT(NodesError("n[1-2],n2"), Catch::Matchers::Contains("node n2 twice"));
  CHECK_THAT(NodesError("-w,n1"), Catch::Matchers::Contains("begins with `-`"));
  CHECK_THAT(NodesError("n 1"), Catch::Matchers::Contains("unexpected character"));
  CHECK_THAT(NodesError("n[1-65537]"), Catch::Matchers::Contains("more than 65536 nodes"));
  CHECK_THAT(NodesError("r[1-1000]n[1-1000]"), Catch::Matchers::Contains("more than 65536 nodes"));
  CHECK_THAT(NodesError("n[1-60000]" + std::string(100000, 'x')), Catch::Matchers::Contains("more than 255 bytes"));
  CHECK_THAT(NodesError("n[0-99999999999999999999]"), Catch::Matchers::Contains("more than 18 digits"));
}

TEST_CASE("SLURM's counts a node") {
  CHECK(ExpandCounts("2(x3),1", "T") == std::vector<int>{2, 2, 2, 1});
  CHECK(ExpandCounts("16", "T") == std::vector<int>{16});
  for (const char* bad : {"", "2(x", "2(3)", "0", "2(x0)", "2,,1", "2x", "70000"}) {
    INFO(bad);
    CHECK_THROWS_AS(ExpandCounts(bad, "T"), UsageError);
  }
  CHECK(CountOfGpus("4") == 4);
  CHECK(CountOfGpus("a100:4") == 4);
  CHECK(CountOfGpus("a100:2,v100:1") == 3);
  CHECK(CountOfGpus("gpu:a100:2(IDX:0,2)") == 2);
  CHECK(CountOfGpus("many") == -1);
  CHECK(CountOfGpus("") == -1);
}

TEST_CASE("An allocation's slots are its tasks, or its GPUs") {
  World world;
  world.variables["SLURM_JOB_NUM_NODES"] = "2";
  world.variables["SLURM_TASKS_PER_NODE"] = "2,1";
  world.variables["SLURM_NTASKS"] = "3";
  world.variables["SLURM_JOB_CPUS_PER_NODE"] = "8(x2)";
  world.variables["SLURMD_NODENAME"] = "n2";
  SlurmAllocation allocation = world.Read();
  CHECK(SlotsOf(allocation) == "n1:2 n2:1 ");
  CHECK(allocation.job_id == "7");
  CHECK(allocation.this_node == "n2");
  CHECK(allocation.slots_from == "1 to 2 slots a node (SLURM_TASKS_PER_NODE)");

  // Nobody asked for tasks: SLURM's guess of one a CPU is not ours.
  world.variables.erase("SLURM_NTASKS");
  world.variables["SLURM_TASKS_PER_NODE"] = "8(x2)";
  CHECK(SlotsOf(world.Read()) == "n1:1 n2:1 ");

  world.variables["SLURM_GPUS_PER_NODE"] = "h100:4";
  CHECK(SlotsOf(world.Read()) == "n1:4 n2:4 ");
  world.variables.erase("SLURM_GPUS_PER_NODE");

  // --gpus may be spread unevenly: only SLURM knows.
  world.variables["SLURM_GPUS_ON_NODE"] = "1";
  world.answers["scontrol --details show job 7"] =
      "JobId=7 JobName=x\n   NodeList=n[1-2]\n     Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:1(IDX:0)\n"
      "     Nodes=n2 CPU_IDs=0-3 Mem=0 GRES=gpu:h100:2(IDX:0,3),nic:1(IDX:0)\n   Power=\n";
  allocation = world.Read();
  CHECK(SlotsOf(allocation) == "n1:1 n2:2 ");
  CHECK(allocation.slots_from == "1 to 2 GPUs a node (scontrol show job)");
  world.answers.clear();
  CHECK(SlotsOf(world.Read()) == "n1:1 n2:1 ");

  world.variables["SLURM_ARRAY_JOB_ID"] = "5";
  world.variables["SLURM_ARRAY_TASK_ID"] = "3";
  CHECK(world.Read().job_id == "5_3");
}

TEST_CASE("Where our reading of the nodes contradicts SLURM, its own program is asked") {
  World world;
  world.variables["SLURM_JOB_NODELIST"] = "{n1;n2}";
  world.variables["SLURM_JOB_NUM_NODES"] = "2";
  world.answers["scontrol show hostnames {n1;n2}"] = "n1\nn2\n";
  CHECK(SlotsOf(world.Read()) == "n1:1 n2:1 ");
  world.answers.clear();
  CHECK_THAT(world.Error(), Catch::Matchers::Contains("SLURM_JOB_NODELIST: `{n1;n2}` has 1 nodes, and "
                                                      "SLURM_JOB_NUM_NODES is 2; `scontrol show hostnames` did not"));
}

TEST_CASE("Where no job can start: outside, among several tasks, in a heterogeneous job, with broken variables") {
  World world;
  world.variables.clear();
  CHECK_THAT(world.Error(), Catch::Matchers::Contains("not inside a SLURM allocation") &&
                                Catch::Matchers::Contains("sbatch") && Catch::Matchers::Contains("salloc"));
  world = World();
  world.variables["SLURM_STEP_ID"] = "0";
  world.variables["SLURM_STEP_NUM_TASKS"] = "4";
  CHECK_THAT(world.Error(), Catch::Matchers::Contains("one of 4 tasks that srun started"));
  world.variables["SLURM_STEP_NUM_TASKS"] = "1";
  world.variables["SLURM_TASKS_PER_NODE"] = "1";  // the step's, of one node
  CHECK(SlotsOf(world.Read()) == "n1:1 n2:1 ");
  world = World();
  world.variables["SLURM_TASKS_PER_NODE"] = "1";
  CHECK_THAT(world.Error(), Catch::Matchers::Contains("has counts for 1 nodes, and the allocation has 2"));
  world = World();
  world.variables["SLURM_HET_SIZE"] = "2";
  CHECK_THAT(world.Error(), Catch::Matchers::Contains("heterogeneous"));
}

TEST_CASE("A hostfile inside an allocation is held to it") {
  World world;
  world.variables["SLURM_JOB_CPUS_PER_NODE"] = "2(x2)";
  const SlurmAllocation allocation = world.Read();
  CHECK(RefusalOf(allocation, {"N1", "", {0, 1}}).empty());
  CHECK_THAT(RefusalOf(allocation, {"n3", "", {0}}),
             Catch::Matchers::Contains("host n3 is not in SLURM's allocation 7 (n[1-2])"));
  CHECK_THAT(RefusalOf(allocation, {"n1", "", {0, 2}}),
             Catch::Matchers::Contains("slot 2 is asked for, and SLURM's allocation 7 has 2 CPUs there"));
  CHECK_THAT(RefusalOf(allocation, {"n1", "alice", {0}}), Catch::Matchers::Contains("leave `alice@` out"));
  world.variables["SLURM_GPUS_PER_NODE"] = "1";
  CHECK_THAT(RefusalOf(world.Read(), {"n1", "", {0, 1}}), Catch::Matchers::Contains("has 1 GPUs there"));
}

TEST_CASE("srun's account of its tasks' ends") {
  auto ended = ReadTasksEnded("srun: error: n2: task 1: Killed");
  REQUIRE(ended);
  CHECK(ended->nodes == std::vector<std::string>{"n2"});
  CHECK(ended->end.signal == SIGKILL);
  ended = ReadTasksEnded("srun: error: n[1-2]: tasks 0-1: Exited with exit code 3");
  REQUIRE(ended);
  CHECK(ended->nodes == std::vector<std::string>{"n1", "n2"});
  CHECK(ended->end.code == 3);
  ended = ReadTasksEnded("srun: error: n1: task 0: Segmentation fault (core dumped)");
  REQUIRE(ended);
  CHECK(ended->end.signal == SIGSEGV);
  ended = ReadTasksEnded("srun: launch/slurm: _task_finish: n1: task 0: Completed");
  REQUIRE(ended);
  CHECK(ended->nodes == std::vector<std::string>{"n1"});
  CHECK((ended->end.code == 0 && ended->end.signal == 0));
  for (const char* line : {"srun: launch/slurm: _task_start: Node n2, 1 tasks started",
                           "srun: error: n2: task 1: Exited", "error: n2: task 1: Killed", "srun: error: task", "",
                           "srun: error: : task 1: Killed", "srun: error: n[: task 1: Killed"}) {
    INFO(line);
    CHECK_FALSE(ReadTasksEnded(line));
  }
  CHECK(ReadNodesFailed("srun: error: Node failure on n[1-2]") == std::vector<std::string>{"n1", "n2"});
  CHECK(ReadNodesFailed("srun: error: n2: task 1: Killed").empty());

  SlurmNoise noise;
  CHECK_FALSE(noise.Add("error: ds-agent: it is told by itself"));
  CHECK(noise.Add("srun: cluster configuration lacks support for cpu binding"));
  CHECK(noise.Add("srun: nodes               : 2"));
  CHECK(noise.Add("srun: error: Unable to create step for job 7: Invalid node"));
  CHECK(noise.Add("srun: error: Unable to create step for job 7: Invalid node"));
  CHECK(noise.Text() == "Unable to create step for job 7: Invalid node");
}

TEST_CASE("srun does not take the batch script's layout for the agents'") {
  const std::vector<std::string> cleaned =
      SrunEnvironment({"SLURM_JOB_ID=7", "SLURM_GPUS_PER_TASK=1", "SLURM_NTASKS_PER_NODE=8", "SLURM_EXPORT_ENV=NONE",
                       "PATH=/bin", "SLURM_JOB_NODELIST=n[1-2]", "SRUN_CPUS_PER_TASK=4", "ODD"});
  CHECK(cleaned == std::vector<std::string>{"SLURM_JOB_ID=7", "PATH=/bin", "SLURM_JOB_NODELIST=n[1-2]", "ODD"});
}

TEST_CASE("A command's output, its end, and a limit to its time") {
  auto run = RunCaptured({"/bin/sh", "-c", "echo out; echo error >&2; exit 3"}, 30);
  REQUIRE(run);
  CHECK(run->out == "out\n");
  CHECK(run->error == "error\n");
  CHECK(run->end.code == 3);
  CHECK_FALSE(RunCaptured({"/bin/sh", "-c", "sleep 100"}, 0.1));
  CHECK_FALSE(RunCaptured({"ds-no-such-program"}, 30));
  run = RunCaptured({"/bin/sh", "-c", "yes | head -c 3000000"}, 30);
  REQUIRE(run);
  CHECK(run->out.size() == 1 << 20);
  // A child that keeps its pipes is not waited for.
  run = RunCaptured({"/bin/sh", "-c", "sleep 5 & echo left"}, 30);
  REQUIRE(run);
  CHECK(run->out == "left\n");
}

}  // namespace ds
