// Bootstrap `slurm` and scripts/slurm/ against a real SLURM on this machine: from the batch script to the finished job,
// and every way in which SLURM ends one.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>

#include "runtime/base/json.h"
#include "test/catch.h"
#include "test/cluster_slurm/slurm_cluster.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

constexpr char kScripts[] = DS_SOURCE_DIR "/scripts/slurm/";

double Since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A cluster with a tiny model's job in its folder: `steps` steps, 2 samples a step.
struct Bench {
  SlurmCluster slurm;

  explicit Bench(int64_t steps, int node_seconds = 100) : slurm(node_seconds) {
    std::string words;
    for (int i = 0; i < 20000; ++i) words += std::to_string(i) + " ";
    WriteText(slurm.path("text.txt"), words);
    WriteText(slurm.path("job.yaml"),
              "job: {name: tiny}\nmodel: {preset: gpt2-tiny}\ndata: {train: text.txt, sequence_length: 32}\n"
              "training: {steps: " +
                  std::to_string(steps) +
                  "}\n"
                  "deepspeed: {train_batch_size: 4, optimizer: {type: AdamW}}\n");
  }

  std::string Folder(const std::string& name = "tiny") const { return slurm.path("runs/" + name); }
  std::string Latest(const std::string& name = "tiny") const {
    std::error_code error;
    return fs::canonical(Folder(name) + "/latest", error).string();
  }
  /// Runs of a name, oldest first.
  std::vector<std::string> Runs(const std::string& name = "tiny") const {
    std::vector<std::string> runs;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(Folder(name), error)) {
      if (!entry.is_symlink()) runs.push_back(entry.path().string());
    }
    std::sort(runs.begin(), runs.end());
    return runs;
  }
  std::vector<Value> Lines(const std::string& run, const std::string& file) const {
    std::istringstream text(ReadText(run + "/" + file));
    std::vector<Value> values;
    for (std::string line; std::getline(text, line) && !text.eof();) values.push_back(ParseJson(line, file));
    return values;
  }
  Value Summary(const std::string& run) const { return ParseJson(ReadText(run + "/summary.json"), run); }
  /// "step loss" of each step
  std::vector<std::string> Losses(const std::string& run) const {
    std::vector<std::string> losses;
    for (const Value& line : Lines(run, "metrics.jsonl"))
      losses.push_back(Text(line, "step") + " " + Text(line, "loss"));
    return losses;
  }
  /// Once the newest run of `runs` in all is at that step: its folder.
  std::string AwaitStep(int step, size_t runs = 1, const std::string& name = "tiny") const {
    std::string run;
    const bool reached = Eventually(40, [&] {
      // The newest by its name: `latest` is moved to it a moment after it is made.
      const std::vector<std::string> all = Runs(name);
      if (all.empty() || all.size() < runs) return false;
      run = all.back();
      const std::vector<Value> lines = Lines(run, "metrics.jsonl");
      return !lines.empty() && std::stoi(Text(lines.back(), "step")) >= step;
    });
    INFO("run " << run << ": " << ReadText(run + "/events.jsonl"));
    REQUIRE(reached);
    return run;
  }
  /// No launcher, agent or worker of any job is left, on any node.
  bool NothingRuns(double seconds) const {
    return Eventually(seconds, [&] {
      return slurm.Processes("ds-launch").empty() && slurm.Processes("ds-agent").empty() &&
             slurm.Processes("ds-worker").empty();
    });
  }
  int Checkpoints(const std::string& run) const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(run + "/checkpoints")) {
      count += entry.path().filename().string().starts_with("step-");
    }
    return count;
  }
};

/// Whether `secret` bytes of a PEM key are where others could read them.
bool HoldsKey(const std::string& text) { return text.find("PRIVATE KEY") != std::string::npos; }

}  // namespace

TEST_CASE("From the batch script to the finished job: nodes and slots are the allocation's") {
  if (!HasSlurm()) return;
  Bench bench(20);
  const std::string job =
      bench.slurm.Submit({"--nodes=2", "--ntasks-per-node=2", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
  bench.slurm.Await(job, {"COMPLETED", "FAILED"}, 60);
  INFO(bench.slurm.Output(job));
  CHECK(bench.slurm.Field(job, "ExitCode") == "0:0");
  const std::string run = bench.Latest();
  const Value summary = bench.Summary(run);
  CHECK(Text(summary, "status") == "completed");
  CHECK(Text(summary, "world") == "4");
  CHECK_THAT(bench.slurm.Output(job),
             Contains("bootstrap: slurm (inside SLURM's allocation " + job + ")") && Contains("4 ranks on 2 nodes"));
  for (const char* node : {"n1", "n2"}) {
    const Value report = ParseJson(ReadText(run + "/report/" + node + ".json"), node);
    // 2 CPUs of 8 were allocated on each.
    CHECK(std::stoi(Text(report, "cores")) <= 2);
  }
  CHECK(bench.NothingRuns(5));
}

TEST_CASE("Inside an allocation: dry run, report, hostfiles, filters, and what is refused") {
  if (!HasSlurm()) return;
  Bench bench(3);
  WriteText(bench.slurm.path("theirs"), "n1 slots=1\nn7 slots=1\n");
  WriteText(bench.slurm.path("many"), "n1 slots=64\n");
  WriteText(bench.slurm.path("second"), "N2 slots=2  # as SLURM's names, whatever the case\n");
  const std::string launch = std::string(DS_BIN_DIR) + "/ds-launch", report = std::string(DS_BIN_DIR) + "/ds-report";
  const std::string job = bench.slurm.Submit(
      {"--nodes=2", "--ntasks-per-node=2",
       bench.slurm.Script(
           "all.sh",
           "t() { name=$1; shift; \"$@\" > $name.txt 2>&1; echo \"code $?\" >> $name.txt; }\n"
           "l=" +
               launch +
               "\n"
               "t dry $l job.yaml --dry-run\n"
               "t report " +
               report +
               "\n"
               "t theirs $l --hostfile theirs -- true\n"
               "t many $l --hostfile many -- true\n"
               "t second $l --hostfile second -- sh -c 'echo on $SLURMD_NODENAME rank $RANK of $WORLD_SIZE'\n"
               "t filter $l -i n2:0 -- sh -c 'echo on $SLURMD_NODENAME'\n"
               "t local $l --bootstrap local -- sh -c 'echo world $WORLD_SIZE'\n"
               "t twice srun -n2 -N2 --overlap $l -- true\n"
               "t keys $l -- sh -c 'cat /proc/*/cmdline /proc/*/environ | tr \"\\0\" \"\\n\"'\n"
               "mkdir empty; t nosrun env PATH=$PWD/empty $l -- /bin/true\n")});
  bench.slurm.Await(job, {"COMPLETED"}, 60);
  const auto text = [&](const std::string& name) { return ReadText(bench.slurm.path(name + ".txt")); };
  CHECK_THAT(text("dry"), Contains("bootstrap slurm (inside SLURM's allocation " + job + ")") &&
                              Contains("'--nodelist=n[1-2]'") && Contains("--ntasks-per-node=1") && Contains("code 0"));
  CHECK_THAT(text("report"), Contains("n[1,2]") && Contains("code 0"));
  CHECK_THAT(text("theirs"),
             Contains("host n7 is not in SLURM's allocation " + job + " (n[1-2])") && Contains("code 2"));
  CHECK_THAT(text("many"), Contains("slot 63 is asked for, and SLURM's allocation") && Contains("code 2"));
  CHECK_THAT(text("second"), Contains("on n2 rank 1 of 2") && Contains("code 0") && !Contains("on n1"));
  CHECK_THAT(text("filter"), Contains("on n2") && Contains("1 rank on 1 node") && !Contains("on n1"));
  CHECK_THAT(text("local"), Contains("world 2") && Contains("code 0"));
  CHECK_THAT(text("twice"), Contains("one of 2 tasks that srun started"));
  CHECK_THAT(text("keys"), Contains("code 0") && Contains("SLURMD_NODENAME"));
  CHECK_FALSE(HoldsKey(text("keys")));
  CHECK_THAT(text("nosrun"), Contains("cannot find the program srun in PATH") && Contains("code 3"));
  std::string outside;
  CHECK(bench.slurm.Run({launch, "job.yaml", "--bootstrap", "slurm"}, &outside) == 2);
  CHECK_THAT(outside, Contains("not inside a SLURM allocation") && Contains("sbatch"));
  CHECK(bench.NothingRuns(5));
}

TEST_CASE("scancel: every process gets SIGTERM at once; the job ends with a checkpoint") {
  if (!HasSlurm()) return;
  Bench bench(1000000);
  const std::string job = bench.slurm.Submit({"--nodes=2", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
  const std::string run = bench.AwaitStep(5);
  const auto begin = Clock::now();
  bench.slurm.Run({"scancel", job});
  CHECK(bench.NothingRuns(8));  // KillWait of this cluster
  CHECK(Since(begin) < 8);
  bench.slurm.Await(job, {"CANCELLED"}, 10);
  const Value summary = bench.Summary(run);
  CHECK(Text(summary, "status") == "interrupted");
  CHECK(Text(summary, "exit_code") == "143");
  CHECK(bench.Checkpoints(run) == 1);
}

TEST_CASE("A step that is cancelled, a killed srun, agent or launcher: named, and nothing left") {
  if (!HasSlurm()) return;
  Bench bench(1000000);
  struct Hurt {
    const char* what;
    std::function<void(const std::string& job)> hurt;
    const char* message;
    const char* or_message = message;  ///< SLURM's words come from several processes: which are first is not decided
  };
  const Hurt hurts[] = {
      {"the step cancelled",
       [&](const std::string& job) {
         bench.slurm.Run({"scancel", job + ".0"});
       },
       "Job step aborted", " CANCELLED AT "},
      {"srun killed", [&](const std::string&) { ::kill(bench.slurm.Processes("srun").at(0), SIGKILL); },
       "srun ended (killed by signal 9 (SIGKILL))", " was lost: killed by signal 9 (SIGKILL)"},
      {"an agent killed", [&](const std::string&) { ::kill(bench.slurm.Processes("ds-agent", "n2").at(0), SIGKILL); },
       "the agent on n2 was lost: killed by signal 9 (SIGKILL)"},
  };
  size_t runs = 0;
  for (const Hurt& hurt : hurts) {
    INFO(hurt.what);
    const std::string job = bench.slurm.Submit({"--nodes=2", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
    const std::string run = bench.AwaitStep(2, ++runs);
    hurt.hurt(job);
    bench.slurm.Await(job, {"FAILED"}, 20);
    CHECK(bench.slurm.Field(job, "ExitCode") == "4:0");
    const Value summary = bench.Summary(run);
    CHECK(CauseOf(summary, "kind") == "node_lost");
    CHECK_THAT(CauseOf(summary, "message"), Contains(hurt.message) || Contains(hurt.or_message));
    CHECK(bench.NothingRuns(5));
  }
  const std::string job = bench.slurm.Submit({"--nodes=2", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
  bench.AwaitStep(2, ++runs);
  for (const pid_t pid : bench.slurm.Processes("ds-launch")) ::kill(pid, SIGKILL);
  CHECK(bench.NothingRuns(5));
  bench.slurm.Await(job, {"FAILED"}, 20);
  // SLURM may have killed an agent and its keeper at the same moment: the folder of its socket is the next agent's to
  // remove.
  CHECK(bench.slurm.Run({std::string(DS_BIN_DIR) + "/ds-report"}) == 0);
}

TEST_CASE(
    "A warning before the time limit: a checkpoint, requeued once, and the losses of a run without interruption") {
  if (!HasSlurm()) return;
  Bench bench(300);
  const std::string job = bench.slurm.Submit({"--nodes=2", std::string(kScripts) + "requeue.sh", "job.yaml"});
  const std::string first = bench.AwaitStep(3);
  bench.slurm.Run({"scancel", "--batch", "--signal=USR1", job});  // as --signal=B:USR1 does
  REQUIRE(Eventually(30, [&] { return bench.slurm.Field(job, "Restarts") == "1"; }));
  bench.slurm.Await(job, {"COMPLETED"}, 60);
  INFO(bench.slurm.Output(job));
  CHECK(bench.slurm.Field(job, "Restarts") == "1");
  Value summary = bench.Summary(first);
  CHECK(Text(summary, "status") == "preempted");
  CHECK(Text(summary, "exit_code") == "138");
  const std::string second = bench.Latest();
  REQUIRE(bench.Runs().size() == 2);
  REQUIRE(second != first);
  summary = bench.Summary(second);
  CHECK(Text(summary, "status") == "completed");
  CHECK(Text(summary, "parent") == fs::path(first).filename().string());
  // Not one step twice, none left out, and the numbers of a run that nobody disturbed.
  std::vector<std::string> losses = bench.Losses(first), rest = bench.Losses(second);
  losses.insert(losses.end(), rest.begin(), rest.end());
  WriteText(bench.slurm.path("hosts"), "127.0.0.1 slots=1\n127.0.0.2 slots=1\n");
  std::string output;
  REQUIRE(bench.slurm.Run(
              {std::string(DS_BIN_DIR) + "/ds-launch", "job.yaml", "--hostfile", "hosts", "--set", "job.name=whole"},
              &output) == 0);
  CHECK(losses == bench.Losses(bench.Latest("whole")));
  CHECK(losses.size() == 300);
}

TEST_CASE("SLURM's own clock: --signal=B:USR1 requeues, a time limit ends with a checkpoint") {
  if (!HasSlurm()) return;
  Bench bench(1000000);
  // SLURM looks at its limits every 30 s, and counts them in minutes: the end is moved close by hand.
  const std::string warned =
      bench.slurm.Submit({"--nodes=1", "--time=2", "--signal=B:USR1@60", std::string(kScripts) + "requeue.sh",
                          "job.yaml", "--set", "job.name=warned"});
  const std::string limited = bench.slurm.Submit(
      {"--nodes=2", "--time=1", std::string(kScripts) + "many_nodes.sh", "job.yaml", "--set", "job.name=limited"});
  const std::string first = bench.AwaitStep(2, 1, "warned"), run = bench.AwaitStep(2, 1, "limited");
  const auto end_in = [&](const std::string& job, int seconds) {
    const auto at =
        std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + std::chrono::seconds(seconds));
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", std::localtime(&at));
    std::string output;
    REQUIRE(bench.slurm.Run({"scontrol", "update", "JobId=" + job, std::string("EndTime=") + text}, &output) == 0);
  };
  end_in(warned, 62);
  end_in(limited, 1);
  bench.slurm.Await(limited, {"TIMEOUT"}, 60);
  Value summary = bench.Summary(run);
  CHECK(Text(summary, "status") == "interrupted");
  CHECK(Text(summary, "exit_code") == "143");
  CHECK(bench.Checkpoints(run) == 1);
  // The warned one goes on from its checkpoint in a second run.
  REQUIRE(Eventually(40, [&] { return bench.slurm.Field(warned, "Restarts") == "1"; }));
  const std::string second = bench.AwaitStep(1, 2, "warned");
  summary = bench.Summary(first);
  CHECK(Text(summary, "status") == "preempted");
  CHECK(std::stoi(Text(bench.Lines(second, "metrics.jsonl").front(), "step")) == std::stoi(Text(summary, "steps")) + 1);
}

TEST_CASE("Arrays: each task has its own runs, and is requeued by its own number") {
  if (!HasSlurm()) return;
  Bench bench(3000);
  const std::string plain =
      bench.slurm.Submit({"--array=0-1", std::string(kScripts) + "array.sh", "job.yaml", "--set", "training.steps=3"});
  for (const char* task : {"_0", "_1"}) bench.slurm.Await(plain + task, {"COMPLETED"}, 60);
  for (const char* name : {"sweep-0", "sweep-1"}) {
    REQUIRE(bench.Runs(name).size() == 1);
    CHECK(Text(bench.Summary(bench.Latest(name)), "status") == "completed");
  }
  CHECK(bench.Losses(bench.Latest("sweep-0")) != bench.Losses(bench.Latest("sweep-1")));
  fs::remove_all(bench.slurm.path("runs"));

  const std::string array = bench.slurm.Submit({"--array=0-1", std::string(kScripts) + "requeue.sh", "job.yaml"});
  bench.AwaitStep(2, 1, "sweep-1");
  bench.slurm.Run({"scancel", "--batch", "--signal=USR1", array + "_1"});
  for (const char* task : {"_0", "_1"}) bench.slurm.Await(array + task, {"COMPLETED"}, 60);
  CHECK(bench.Runs("sweep-0").size() == 1);
  REQUIRE(bench.Runs("sweep-1").size() == 2);
  CHECK(Text(bench.Summary(bench.Runs("sweep-1")[0]), "status") == "preempted");
  CHECK(Text(bench.Summary(bench.Runs("sweep-1")[1]), "status") == "completed");
  CHECK(bench.slurm.Field(array + "_0", "Restarts") == "0");
  CHECK(bench.slurm.Field(array + "_1", "Restarts") == "1");
}

TEST_CASE("Without munge no step starts: said at once, in its own words") {
  if (!HasSlurm()) return;
  Bench bench(3);
  const std::string job = bench.slurm.Submit(
      {"--nodes=2", bench.slurm.Script("wait.sh",
                                       "touch started; until [ -e go ]; do sleep 0.1; done\n"
                                       "$DS_LAUNCH job.yaml > launch.txt 2>&1; echo \"code $?\" >> launch.txt\n"
                                       "touch done\n")});
  REQUIRE(Eventually(20, [&] { return fs::exists(bench.slurm.path("started")); }));
  bench.slurm.Kill("munged");
  const auto begin = Clock::now();
  WriteText(bench.slurm.path("go"), "");
  CHECK(Eventually(60, [&] { return fs::exists(bench.slurm.path("done")); }));
  CHECK(Since(begin) < 30);
  const std::string said = ReadText(bench.slurm.path("launch.txt"));
  CHECK_THAT(said, Contains("SLURM does not answer") && Contains("Is munge running") && Contains("code 3"));
  fs::remove(bench.slurm.path("munge.socket"));
  bench.slurm.Start("munged");
  bench.slurm.Await(job, {"COMPLETED"}, 30);
}

TEST_CASE("A node that dies is lost within seconds; one whose slurmd died, when SLURM says so") {
  if (!HasSlurm()) return;
  Bench bench(1000000, /*node_seconds=*/8);
  // All of the node at once: slurmd, its steps' daemons, the agent, the workers.
  std::string job =
      bench.slurm.Submit({"--nodes=2", "--no-requeue", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
  std::string run = bench.AwaitStep(2);
  auto begin = Clock::now();
  bench.slurm.Kill("n2");
  for (const pid_t pid : bench.slurm.ProcessesOn("n2")) ::kill(pid, SIGKILL);
  CHECK(Eventually(10, [&] { return fs::exists(run + "/summary.json"); }));
  CHECK(Since(begin) < 10);
  CHECK(Text(bench.Summary(run), "exit_code") == "4");
  CHECK_THAT(CauseOf(bench.Summary(run), "message"), Contains("the agent on n2 was lost"));
  CHECK(bench.NothingRuns(5));
  bench.slurm.Start("n2");
  bench.slurm.Await(job, {"FAILED", "NODE_FAIL"}, 40);
  bench.slurm.Run({"scancel", job});
  bench.slurm.Run({"scontrol", "update", "NodeName=n2", "State=RESUME"});

  // slurmd alone: agent and workers go on, until SLURM gives the node up (SlurmdTimeout, 8 s here).
  job = bench.slurm.Submit({"--nodes=2", "--no-kill", std::string(kScripts) + "many_nodes.sh", "job.yaml"});
  run = bench.AwaitStep(2, 2);
  begin = Clock::now();
  bench.slurm.Kill("n2");
  CHECK(Eventually(60, [&] { return fs::exists(run + "/summary.json"); }));
  CHECK(Since(begin) > 4);
  CHECK(Text(bench.Summary(run), "exit_code") == "4");
  CHECK(CauseOf(bench.Summary(run), "host") == "n2");
  CHECK_THAT(CauseOf(bench.Summary(run), "message"), Contains("Node failure on n2"));
  CHECK(bench.NothingRuns(8));
  // The step's daemon has lost its slurmd: SLURM's own to clean up.
  for (const pid_t pid : bench.slurm.ProcessesOn("n2")) ::kill(pid, SIGKILL);
  bench.slurm.Start("n2");
}

TEST_CASE("The batch scripts are accepted, and bash finds nothing wrong with them") {
  if (!HasSlurm()) return;
  SlurmCluster slurm;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(kScripts)) {
    std::string output;
    INFO(entry.path());
    CHECK(slurm.Run({"bash", "-n", entry.path()}, &output) == 0);
    CHECK(slurm.Run({"sbatch", "--test-only", entry.path(), "job.yaml"}, &output) == 0);
    INFO(output);
    ++count;
  }
  CHECK(count == 4);
}

}  // namespace ds::test
