// Jobs that run without agents: ranks that mpirun started, and one alone. They train as ds-launch's do, bit for bit,
// and every ending has its cause, its exit code, and leaves nothing.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "test/catch.h"
#include "test/cluster/mpirun.h"
#include "test/cluster/needs.h"
#include "test/cluster/slurm_cluster.h"
#include "test/fault/launched_job.h"

namespace fs = std::filesystem;
using ds::Value;
using ds::test::CauseOf;
using ds::test::Eventually;
using ds::test::Installed;
using ds::test::LaunchedJob;
using ds::test::LaunchSetting;
using ds::test::Mpirun;
using ds::test::SlurmCluster;
using ds::test::Text;

namespace {

const std::string kWorker = std::string(DS_BIN_DIR) + "/ds-worker";

std::map<std::string, std::string> Files() {
  std::ifstream license(std::string(DS_SOURCE_DIR) + "/LICENSE");
  std::ostringstream text;
  text << license.rdbuf();
  return {{"text.txt", text.str()},
          {"job.yaml",
           "job: {name: small}\n"
           "model: {preset: gpt2-tiny, dropout: 0.1}\n"
           "data: {train: text.txt, validation: text.txt, sequence_length: 32}\n"
           "training: {steps: 20, validate_every: 10, validate_batches: 1}\n"
           "deepspeed:\n"
           "  train_batch_size: 16\n"
           "  train_micro_batch_size_per_gpu: 2\n"
           "  optimizer: {type: AdamW, params: {lr: 1e-2}}\n"
           "  zero_optimization: {stage: 3, stage3_param_persistence_threshold: 100}\n"}};
}

/// What must not depend on who started the ranks: the numbers exactly as metrics.jsonl writes them.
std::vector<std::string> Curve(const std::vector<Value>& lines) {
  std::vector<std::string> curve;
  for (const Value& line : lines) {
    std::string text;
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "validation_loss"})
      text += std::string(key) + "=" + Text(line, key) + " ";
    curve.push_back(text);
  }
  return curve;
}

std::vector<std::string> EndlessJob() { return {kWorker, "job.yaml", "--set", "training.steps=1000000"}; }

}  // namespace

TEST_CASE("without agents: the bits of ds-launch, over MPI and over Gloo") {
  if (!Installed("mpirun")) return;
  LaunchSetting setting;
  const auto files = Files();
  Mpirun mpi(2, {kWorker, "job.yaml"}, files);
  REQUIRE(mpi.Wait(60) == 0);
  CHECK(mpi.NothingLeft(3));
  CHECK(mpi.output().find("collectives over Open MPI") != std::string::npos);
  CHECK(Text(mpi.Summary(), "status") == "completed");
  CHECK(Text(mpi.Summary(), "world") == "2");
  CHECK(fs::exists(mpi.run_directory() + "/checkpoints/step-20"));
  CHECK(fs::exists(mpi.run_directory() + "/plan/rank-0.txt"));

  setting.arguments = {mpi.folder() + "/job.yaml", "--num-gpus", "2"};
  setting.environment["DS_WORKER_PROGRAM"] = kWorker;
  LaunchedJob launched(setting);
  REQUIRE(launched.Wait(60) == 0);
  const std::vector<std::string> expected = Curve(launched.Lines("metrics.jsonl"));
  REQUIRE(expected.size() == 20);
  CHECK(Curve(mpi.Lines("metrics.jsonl")) == expected);

  Mpirun gloo(2, {kWorker, "job.yaml", "--collectives=gloo"}, files);
  REQUIRE(gloo.Wait(60) == 0);
  CHECK(Curve(gloo.Lines("metrics.jsonl")) == expected);
  for (const auto& entry : fs::directory_iterator(gloo.folder() + "/runs"))  // where the ranks met
    CHECK(entry.path().filename() == "small");
}

TEST_CASE("without agents: SIGUSR1 to mpirun takes a checkpoint, 138; --resume auto goes on from it") {
  if (!Installed("mpirun")) return;
  Mpirun job(2, EndlessJob(), Files());
  REQUIRE(job.WaitForStep(3));
  ::kill(job.pid(), SIGUSR1);
  REQUIRE(job.Wait(30) == 128 + SIGUSR1);
  CHECK(job.NothingLeft(3));
  const Value summary = job.Summary();
  CHECK(Text(summary, "status") == "preempted");
  CHECK(CauseOf(summary, "signal") == std::to_string(SIGUSR1));
  const int64_t steps = ds::AsInteger(*summary.Find("steps"));
  CHECK(fs::exists(job.run_directory() + "/checkpoints/step-" + std::to_string(steps)));

  const std::string parent = fs::path(job.run_directory()).filename();
  Mpirun next(2,
              {kWorker, "job.yaml", "--output", job.folder() + "/runs", "--resume", "auto", "--set",
               "training.steps=" + std::to_string(steps + 5)},
              Files());
  REQUIRE(next.Wait(60) == 0);
  const Value resumed = ds::ParseJson(
      [&] {
        std::ifstream file(fs::canonical(job.folder() + "/runs/small/latest") / "summary.json");
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
      }(),
      "summary.json");
  CHECK(Text(resumed, "parent") == parent);
  CHECK(Text(resumed, "steps") == std::to_string(steps + 5));
}

TEST_CASE("without agents: a rank that is killed is named, and all end within 10 s") {
  if (!Installed("mpirun")) return;
  for (int victim : {1, 0}) {
    // Rank 0 is lost over TCP, as between nodes: Open MPI then means to end the one that is left.
    Mpirun job(2, EndlessJob(), Files(), {{"OMPI_MCA_btl", victim == 0 ? "self,tcp" : "self,vader,tcp"}});
    REQUIRE(job.WaitForStep(3));
    ::kill(job.Ranks().at(victim), SIGKILL);
    REQUIRE(job.Wait(10) == 137);  // mpirun's own account
    CHECK(job.NothingLeft(3));
    const Value summary = job.Summary();
    CHECK(Text(summary, "status") == "failed");
    CHECK(Text(summary, "exit_code") == "75");
    CHECK(CauseOf(summary, "kind") == "worker_lost");
    CHECK(CauseOf(summary, "rank") == std::to_string(victim));
  }
}

TEST_CASE("without agents: a rank that fails by itself gives its exit code and its reason") {
  if (!Installed("mpirun")) return;
  // Rank 1 cannot write its part of the checkpoint.
  Mpirun job(2, {"sh", "-c", "[ $OMPI_COMM_WORLD_RANK = 1 ] && ulimit -f 1; exec \"$@\"", "sh", kWorker, "job.yaml"},
             Files());
  const int code = job.Wait(60);
  INFO(job.output());
  CHECK(code == 1);
  CHECK(job.NothingLeft(3));
  const Value summary = job.Summary();
  CHECK(Text(summary, "status") == "failed");
  CHECK(CauseOf(summary, "kind") == "worker_exit");
  CHECK(CauseOf(summary, "message").find("File too large") != std::string::npos);
}

TEST_CASE("without agents: alone, one rank; what is wrong is said once, 2") {
  Mpirun alone(0, {kWorker, "job.yaml", "--set", "training.steps=2", "--output=elsewhere/runs"}, Files());
  REQUIRE(alone.Wait(60) == 0);
  CHECK(fs::exists(alone.folder() + "/elsewhere/runs/small/latest/summary.json"));
  const auto refused = [](int ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kWorker);
    Mpirun job(ranks, arguments, Files());
    CHECK(job.Wait(30) == 2);
    CHECK(!fs::exists(job.folder() + "/runs/small"));
    return job.output();
  };
  CHECK(refused(0, {"job.yaml", "--tee", "0"}).find("unknown option --tee") != std::string::npos);
  CHECK(refused(0, {"job.yaml", "--collectives", "mpi", "--set"}).find("--set: a value is missing") !=
        std::string::npos);
  CHECK(refused(0, {"absent.yaml"}).find("absent.yaml") != std::string::npos);
  if (!Installed("mpirun")) return;
  const std::string output = refused(2, {"job.yaml", "--set", "training.stepz=3"});
  const size_t at = output.find("training.stepz: unknown key");
  REQUIRE(at != std::string::npos);
  CHECK(output.find("training.stepz: unknown key", at + 1) == std::string::npos);
}

TEST_CASE("without agents: srun of a real SLURM starts the ranks, over Gloo and over MPI; USR1 and a killed rank") {
  if (!SlurmCluster::Possible()) return;
  SlurmCluster slurm;
  const std::map<std::string, std::string> environment{{"SLURM_CONF", slurm.configuration()}};
  const auto srun = [&](std::vector<std::string> options, const std::vector<std::string>& more = {}) {
    options.insert(options.begin(), "srun");
    options.insert(options.end(), {kWorker, "job.yaml"});
    options.insert(options.end(), more.begin(), more.end());
    return options;
  };
  Mpirun gloo(0, srun({"-N2", "-n2"}), Files(), environment);
  REQUIRE(gloo.Wait(60) == 0);
  CHECK(gloo.NothingLeft(5));
  CHECK(gloo.output().find("2 ranks (srun), collectives over Gloo") != std::string::npos);
  const auto curve = Curve(gloo.Lines("metrics.jsonl"));
  CHECK(curve.size() == 20);
  for (const auto& entry : fs::directory_iterator(gloo.folder() + "/runs")) CHECK(entry.path().filename() == "small");

  Mpirun mpi(0, srun({"-N1", "-n2", "--mpi=pmix"}), Files(), environment);
  REQUIRE(mpi.Wait(60) == 0);
  CHECK(mpi.output().find("2 ranks (srun), collectives over Open MPI") != std::string::npos);
  CHECK(Curve(mpi.Lines("metrics.jsonl")) == curve);

  const std::vector<std::string> endless{"--set", "training.steps=1000000"};
  Mpirun preempted(0, srun({"-N2", "-n2"}, endless), Files(), environment);
  REQUIRE(preempted.WaitForStep(3));
  ::kill(preempted.pid(), SIGUSR1);  // srun passes it on
  CHECK(preempted.Wait(30) == 128 + SIGUSR1);
  CHECK(Text(preempted.Summary(), "status") == "preempted");

  Mpirun killed(0, srun({"-N2", "-n2"}, endless), Files(), environment);
  REQUIRE(killed.WaitForStep(3));
  ::kill(killed.Ranks().at(1), SIGKILL);
  CHECK(killed.Wait(10) == 137);
  CHECK(CauseOf(killed.Summary(), "rank") == "1");
  CHECK(CauseOf(killed.Summary(), "kind") == "worker_lost");
}
