// Promise: the programs together train as one process does. ds-launch, agents over mutual TLS, and workers over Gloo
// give the bits of ranks that are threads; a job that was killed goes on where its checkpoint left it, bit for bit.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

/// A small real job: text, spec and output in a folder of its own, launched as often as a test wants.
class Training {
 public:
  explicit Training(const std::string& model = "gpt2-tiny") {
    fs::copy_file(fs::path(DS_SOURCE_DIR) / "LICENSE", path("text.txt"));
    std::ofstream(path("job.yaml")) << "job: {name: small}\n"
                                       "model: {preset: "
                                    << model
                                    << ", dropout: 0.1}\n"
                                       "data: {train: text.txt, validation: text.txt, sequence_length: 32}\n"
                                       "training: {steps: 20, validate_every: 10, validate_batches: 1}\n"
                                       "checkpoint: {every: 5, keep: 10}\n"
                                       "deepspeed:\n"
                                       "  train_batch_size: 16\n"
                                       "  train_micro_batch_size_per_gpu: 2\n"
                                       "  optimizer: {type: AdamW, params: {lr: 1e-2}}\n"
                                       "  zero_optimization: {stage: 3, stage3_param_persistence_threshold: 100}\n";
  }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

  /// Starts ds-launch with real workers; OUTPUT is this folder's runs/.
  std::unique_ptr<LaunchedJob> Start(std::vector<std::string> arguments, const std::string& hosts = {},
                                     const std::string& failpoint = {}) const {
    LaunchSetting setting;
    setting.arguments = {path("job.yaml"), "--output", path("runs")};
    setting.arguments.insert(setting.arguments.end(), arguments.begin(), arguments.end());
    if (!failpoint.empty()) {
      setting.arguments.push_back("--export");
      setting.arguments.push_back("DS_FAILPOINT=" + failpoint);
    }
    setting.environment["DS_WORKER_PROGRAM"] = std::string(DS_BIN_DIR) + "/ds-worker";
    setting.hosts = hosts;
    setting.shared_output = true;
    if (!hosts.empty()) setting.arguments.insert(setting.arguments.end(), {"--hostfile", "hosts"});
    return std::make_unique<LaunchedJob>(setting);
  }

  void MustEnd(LaunchedJob& job, int code) const {
    const int ended = job.Wait(120);
    INFO(job.output());
    REQUIRE(ended == code);
    CHECK(job.NothingLeft());
  }

 private:
  TemporaryFolder folder_;
};

const char kFourAgents[] = "127.0.0.1 slots=2\n127.0.0.2 slots=2\n127.0.0.3 slots=2\n127.0.0.4 slots=2\n";

/// What a layout and a resume must not change, a line a step: the numbers exactly as metrics.jsonl writes them.
std::vector<std::string> Curve(const LaunchedJob& job, int after_step = 0) {
  std::vector<std::string> curve;
  for (const Value& line : job.Lines("metrics.jsonl")) {
    if (AsInteger(*line.Find("step")) <= after_step) continue;
    std::string text;
    for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens", "validation_loss"})
      text += std::string(key) + "=" + (line.Find(key) ? line.Find(key)->text : "-") + " ";
    curve.push_back(text);
  }
  return curve;
}

/// The messages of events of one kind.
std::vector<std::string> Messages(const LaunchedJob& job, const std::string& kind) {
  std::vector<std::string> messages;
  for (const Value& line : job.Lines("events.jsonl"))
    if (Text(line, "event") == kind) messages.push_back(Text(line, "message"));
  return messages;
}

/// The mask of the thread whose /proc status file this is; bit N - 1 stands for signal N.
uint64_t BlockedSignals(const fs::path& status) {
  std::ifstream file(status);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  return 0;
}

TEST_CASE("eight workers over four agents: ZeRO-3 and ZeRO-2 give the bits of one agent") {
  const Training training;
  const std::vector<std::string> small = {"--set", "deepspeed.train_micro_batch_size_per_gpu=1", "--set",
                                          "training.steps=6"};
  auto four = training.Start(small, kFourAgents);
  training.MustEnd(*four, 0);
  REQUIRE(Curve(*four).size() == 6);
  const Value summary = four->Summary();
  CHECK(Text(summary, "world") == "8");
  CHECK(summary.Find("cause")->is_null());
  for (const char* host : {"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"})
    CHECK(fs::exists(four->run_directory() + "/report/" + host + ".json"));

  std::vector<std::string> other = small;
  other.insert(other.end(), {"--num-gpus", "8", "--set", "deepspeed.zero_optimization.stage=2"});
  auto one = training.Start(other);
  training.MustEnd(*one, 0);
  CHECK(Curve(*one) == Curve(*four));
}

TEST_CASE("pipelines over real processes give the bits of none, and go on from each other's checkpoints") {
  const Training training;
  const std::vector<std::string> batch = {"--set", "deepspeed.train_micro_batch_size_per_gpu=2", "--set",
                                          "training.steps=10"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), batch.begin(), batch.end());
    return more;
  };
  auto none = training.Start(with({"--num-gpus", "2"}));
  training.MustEnd(*none, 0);
  const std::vector<std::string> curve = Curve(*none);
  REQUIRE(curve.size() == 10);

  auto over_agents = training.Start(with({"--set", "parallel.pipeline=2", "--set", "parallel.schedule=zb-v"}),
                                    "127.0.0.1 slots=2\n127.0.0.2 slots=2\n");
  training.MustEnd(*over_agents, 0);
  CHECK(Curve(*over_agents) == curve);
  CHECK(fs::exists(over_agents->run_directory() + "/plan/rank-2.txt"));  // the second stage's
  CHECK(over_agents->Summary().Find("mesh")->Find("pipeline")->text == "2");

  auto broken = training.Start(with({"--num-gpus", "6", "--set", "job.name=broken", "--set", "parallel.pipeline=3"}),
                               {}, "step:8/BackwardInput *,rank=3,kill");
  training.MustEnd(*broken, 128 + SIGKILL);
  CHECK(CauseOf(broken->Summary(), "rank") == "3");
  CHECK(CauseOf(broken->Summary(), "signal") == "9");
  auto resumed = training.Start(
      with({"--num-gpus", "4", "--set", "job.name=broken", "--resume", "auto", "--set", "parallel.pipeline=2", "--set",
            "parallel.schedule=interleaved", "--set", "parallel.virtual_stages=2"}));
  training.MustEnd(*resumed, 0);
  const std::vector<std::string> rest = Curve(*resumed);
  REQUIRE(rest.size() >= 5);
  CHECK(rest == std::vector<std::string>(curve.end() - static_cast<std::ptrdiff_t>(rest.size()), curve.end()));
  const std::string generate = std::string(DS_BIN_DIR) + "/ds-generate --checkpoint " + resumed->run_directory() +
                               "/checkpoints/latest --prompt text --tokens 2 > /dev/null";
  CHECK(std::system(generate.c_str()) == 0);
}

TEST_CASE("kill -9 of a rank in a step and in a checkpoint: the resumed job continues the same curve") {
  const Training training("llama-tiny");
  auto whole = training.Start({});
  training.MustEnd(*whole, 0);
  const std::vector<std::string> curve = Curve(*whole);
  REQUIRE(curve.size() == 20);

  struct Case {
    const char* failpoint;
    std::set<size_t> resumes_after;  // a checkpoint is written while training goes on: it is complete, or not yet
  };
  const Case cases[] = {{"step:13/BackwardWeight layer1.mlp*,rank=1,kill", {5, 10}},
                        {"checkpoint.manifest,rank=0,hit=3,kill", {10}}};
  for (const Case& killed : cases) {
    CAPTURE(killed.failpoint);
    auto broken = training.Start({"--set", "job.name=broken"}, {}, killed.failpoint);
    training.MustEnd(*broken, 128 + SIGKILL);
    const Value summary = broken->Summary();
    CHECK(CauseOf(summary, "signal") == "9");
    auto resumed = training.Start({"--set", "job.name=broken", "--resume", "auto"});
    training.MustEnd(*resumed, 0);
    CHECK(Text(resumed->Summary(), "parent") == broken->run_id());
    const size_t after = curve.size() - Curve(*resumed).size();
    CHECK(killed.resumes_after.count(after) == 1);
    CHECK(Curve(*resumed) == std::vector<std::string>(curve.begin() + static_cast<int>(after), curve.end()));
    CHECK(Messages(*resumed, "resume").size() == 1);
    fs::remove_all(training.path("runs/broken"));
  }

  // The same without anybody's help: a restart inside the run goes on in the same files.
  auto restarted = training.Start({"--set", "launch.restarts=1"}, {}, "step:13/Forward head*,rank=0,attempt=1,kill");
  training.MustEnd(*restarted, 0);
  std::vector<std::string> seen = Curve(*restarted);
  REQUIRE(seen.size() >= 20);
  int again = 0;
  for (const Value& line : restarted->Lines("metrics.jsonl")) again += Text(line, "attempt") == "2" ? 1 : 0;
  REQUIRE((again == 10 || again == 15));
  CHECK(std::vector<std::string>(seen.end() - again, seen.end()) ==
        std::vector<std::string>(curve.end() - again, curve.end()));
  CHECK(std::vector<std::string>(seen.begin(), seen.begin() + 20 - again) ==
        std::vector<std::string>(curve.begin(), curve.end() - again));  // no step before the checkpoint is lost
  CHECK(Messages(*restarted, "resume").size() == 1);
}

TEST_CASE("a resume that cannot work is refused before anything starts, in a dry run too") {
  const Training training;
  {
    auto job = training.Start({"--num-gpus", "1", "--set", "training.steps=5", "--set", "training.log_every=1"});
    training.MustEnd(*job, 0);
    // A checkpoint is told after its step, which it is of.
    const std::string screen = job->output();
    const size_t step = screen.find("step 5/5"), told = screen.find("checkpoint: step 5");
    INFO(screen);
    REQUIRE(step != std::string::npos);
    REQUIRE(told != std::string::npos);
    CHECK(step < told);
  }
  const auto runs = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(training.path("runs/small"))) count += entry.is_directory() ? 1 : 0;
    return count;
  };
  const int before = runs();
  struct Case {
    const char *change, *says;
  };
  for (const Case& c : {Case{"model.hidden=128", "has shape "}, Case{"model.layers=1", "is not in the model"},
                        Case{"model.layers=9", "is missing"},
                        Case{"deepspeed.optimizer.type=Lion", "its optimizer state is of AdamW"}}) {
    for (const bool dry : {true, false}) {
      std::vector<std::string> arguments = {"--num-gpus", "1", "--resume", "auto", "--set", c.change};
      if (dry) arguments.push_back("--dry-run");
      auto job = training.Start(arguments);
      training.MustEnd(*job, 2);
      INFO(c.change << "\n" << job->output());
      CHECK(job->output().find("checkpoint ") != std::string::npos);
      CHECK(job->output().find(c.says) != std::string::npos);
    }
  }
  CHECK(runs() == before);
}

TEST_CASE("kill -9 of a training worker: the signal is the cause, not its peers' broken connections") {
  const Training training;
  auto job = training.Start({"--set", "training.steps=100000"}, "127.0.0.1 slots=1\n127.0.0.2 slots=3\n");
  REQUIRE(job->WaitForStep(2, 60));
  ::kill(job->Worker(1), SIGKILL);
  training.MustEnd(*job, 128 + SIGKILL);
  CHECK(CauseOf(job->Summary(), "rank") == "1");
  CHECK(CauseOf(job->Summary(), "host") == "127.0.0.2");
  CHECK(CauseOf(job->Summary(), "signal") == "9");
}

TEST_CASE("SIGINT to a training worker: the job ends with a checkpoint, rank and signal named; IPv6 beside IPv4") {
  const Training training;
  auto job = training.Start({"--set", "training.steps=100000", "--set", "deepspeed.train_batch_size=4"},
                            "[::1] slots=1\n127.0.0.2 slots=1\n");
  REQUIRE(job->WaitForStep(2, 60));
  ::kill(job->Worker(1), SIGINT);
  training.MustEnd(*job, 128 + SIGINT);
  CHECK(CauseOf(job->Summary(), "rank") == "1");
  CHECK(CauseOf(job->Summary(), "signal") == "2");
  CHECK(!job->Summary().Find("checkpoint")->is_null());
}

TEST_CASE("no thread of a worker runs handlers of SIGINT and SIGTERM: their frames could land in the heap") {
  const Training training;
  auto job = training.Start({"--set", "training.steps=100000"});
  REQUIRE(job->WaitForStep(2, 60));
  int threads = 0;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(job->Worker(0)) + "/task")) {
    const uint64_t blocked = BlockedSignals(task.path() / "status");
    ++threads;
    CHECK((blocked >> (SIGINT - 1) & 1) == 1);
    CHECK((blocked >> (SIGTERM - 1) & 1) == 1);
  }
  CHECK(threads > 2);
  job->Signal(SIGINT);
  training.MustEnd(*job, 128 + SIGINT);
}

TEST_CASE("a rank that cannot write its shard is the cause, its peer a victim, and the step is recorded") {
  const Training training;
  for (const char* async : {"true", "false"}) {
    CAPTURE(async);
    auto job = training.Start({"--set", std::string("checkpoint.async=") + async}, {},
                              "safetensors.write,rank=1,hit=5,enospc");
    training.MustEnd(*job, 1);
    CHECK(CauseOf(job->Summary(), "rank") == "1");
    CHECK(CauseOf(job->Summary(), "message").find("/step-5.partial/rank-1.safetensors: No space left on device") !=
          std::string::npos);
    CHECK(job->Summary().Find("victims")->items.size() == 1);
    CHECK(Curve(*job).size() >= 5);
    CHECK(Messages(*job, "checkpoint").empty());
  }
}

TEST_CASE("a newest checkpoint that is damaged or gone: auto falls back and names it, a path is refused") {
  const Training training;
  const std::vector<std::string> short_run = {"--set", "training.steps=10", "--set", "training.validate_every=0"};
  auto whole = training.Start(short_run);
  training.MustEnd(*whole, 0);
  CHECK(Messages(*whole, "checkpoint").size() == 2);
  const fs::path checkpoints = fs::path(whole->run_directory()) / "checkpoints";
  const std::string shard = checkpoints / "step-10/rank-1.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
  }
  auto resume = [&](const std::string& from) {
    std::vector<std::string> arguments = short_run;
    arguments.insert(arguments.end(), {"--resume", from});
    return training.Start(arguments);
  };
  for (const std::string& path : {checkpoints.string() + "/step-10", whole->run_directory()}) {
    auto refused = resume(path);
    CHECK(refused->Wait(60) == 2);
    CHECK(refused->output().find(shard + " is damaged") != std::string::npos);
  }
  for (bool removed : {false, true}) {
    CAPTURE(removed);
    if (removed) fs::remove_all(checkpoints / "step-10");
    auto fallen_back = resume("auto");
    training.MustEnd(*fallen_back, 0);
    CHECK(Curve(*fallen_back) == Curve(*whole, 5));
    const std::vector<std::string> passed_over = Messages(*fallen_back, "resume_fallback");
    REQUIRE(passed_over.size() == 1);
    CHECK(passed_over[0].find(removed ? "latest points to step-10, which is no folder there" : shard) !=
          std::string::npos);
    REQUIRE(Messages(*fallen_back, "resume").size() == 1);
    CHECK(Messages(*fallen_back, "resume")[0].starts_with("step 5 from " + checkpoints.string() + "/step-5"));
    fs::remove_all(fallen_back->run_directory());
  }
  auto refused = resume(whole->run_directory());
  CHECK(refused->Wait(60) == 2);
  CHECK(refused->output().find("step-10, which is no folder there") != std::string::npos);
}

TEST_CASE("a number that is not finite ends the job by its name, the last checkpoint intact; or the step is skipped") {
  const Training training;
  const std::string fault = "step:7/BackwardWeight layer1.mlp mb1,rank=1,nan";
  auto job = training.Start({}, "127.0.0.1 slots=1\n127.0.0.2 slots=1\n", fault);
  training.MustEnd(*job, 1);
  const Value summary = job->Summary();
  CHECK(CauseOf(summary, "kind") == "not_finite");
  CHECK(CauseOf(summary, "rank") == "1");
  CHECK(CauseOf(summary, "host") == "127.0.0.2");
  const std::string named = "step 7: the gradient of parameter layers.1.mlp.norm.weight of segment layer1.mlp";
  CHECK(CauseOf(summary, "message").find(named) != std::string::npos);
  CHECK(job->output().find(named) != std::string::npos);
  CHECK(summary.Find("victims")->items.size() == 1);
  auto resumed =
      training.Start({"--resume", job->run_directory() + "/checkpoints/step-5", "--set", "training.steps=6"});
  training.MustEnd(*resumed, 0);

  auto skipping = training.Start({"--set", "training.on_nan=skip", "--set", "training.steps=10"}, {},
                                 "step:7/Forward layer0.mlp mb0,rank=0,inf");
  training.MustEnd(*skipping, 0);
  CHECK(skipping->HasEvent("nan_skipped"));
  const std::vector<Value> metrics = skipping->Lines("metrics.jsonl");
  REQUIRE(metrics.size() == 10);
  CHECK(metrics[6].Find("loss")->is_null());
  CHECK(Text(metrics[6], "skipped") == "true");
  CHECK_FALSE(metrics[7].Find("loss")->is_null());
  CHECK(AsDouble(*metrics[7].Find("overhead_ms")) >= 0);
}

TEST_CASE("Ctrl-C takes a checkpoint from which the job goes on, bit for bit") {
  const Training training;
  const std::vector<std::string> long_run = {"--set", "training.steps=4000",      "--set", "checkpoint.every=0",
                                             "--set", "training.validate_every=0"};
  auto stopped = training.Start(long_run);
  REQUIRE(stopped->WaitForStep(3, 60));
  stopped->Signal(SIGINT);
  training.MustEnd(*stopped, 130);
  const Value summary = stopped->Summary();
  CHECK(Text(summary, "status") == "interrupted");
  const int steps = static_cast<int>(AsInteger(*summary.Find("steps")));
  REQUIRE(steps >= 3);
  REQUIRE(fs::exists(stopped->run_directory() + "/checkpoints/step-" + std::to_string(steps) + "/manifest.json"));

  std::vector<std::string> few = long_run;
  few[1] = "training.steps=" + std::to_string(steps + 3);
  auto whole = training.Start(few);
  training.MustEnd(*whole, 0);
  few.insert(few.end(), {"--resume", stopped->run_directory()});
  auto resumed = training.Start(few);
  training.MustEnd(*resumed, 0);
  CHECK(Curve(*resumed) == Curve(*whole, steps));
}

TEST_CASE("places left to the planner are chosen by the nodes' memory, told, and the run's; the curve is the same") {
  Training training;
  const std::vector<std::string> open = {"--set", "deepspeed.zero_optimization.offload_optimizer.device=auto",
                                         "--set", "memory.offload_activations=auto",
                                         "--set", "memory.nvme_path=" + training.path("")};
  auto roomy = training.Start(open);
  training.MustEnd(*roomy, 0);
  std::vector<std::string> tight = open;
  // A little less than it took: something must go into files.
  const int64_t took = AsInteger(*roomy->Summary().Find("predicted")->Find("peak_bytes")->Find("device")) +
                       AsInteger(*roomy->Summary().Find("predicted")->Find("peak_bytes")->Find("host"));
  tight.insert(tight.end(), {"--set", "memory.host_limit=" + std::to_string(took - 4096)});
  auto placed = training.Start(tight);
  training.MustEnd(*placed, 0);
  CHECK(Curve(*placed) == Curve(*roomy));
  REQUIRE(Messages(*roomy, "placement").size() == 2);
  for (const std::string& why : Messages(*roomy, "placement")) CHECK(why.find("auto is none: it fits") != why.npos);
  const std::vector<std::string> why = Messages(*placed, "placement");
  REQUIRE(why.size() >= 2);
  INFO(why[0] << "\n" << why[1]);
  CHECK(why[0].find("offload_optimizer.device: auto is nvme: with none a rank needs ") != std::string::npos);
  CHECK(why[0].find("memory.host_limit is ") != std::string::npos);
  CHECK(placed->output().find(why[0]) != std::string::npos);
  std::ifstream file(placed->run_directory() + "/job.yaml");
  const std::string spec((std::istreambuf_iterator<char>(file)), {});
  CHECK(spec.find("device: nvme") != std::string::npos);
  CHECK(spec.find("device: auto\n      ratio") == std::string::npos);
}

TEST_CASE("ds-generate writes from a checkpoint, the same text for the same seed") {
  const Training training;
  auto job = training.Start({"--set", "training.steps=2"});
  training.MustEnd(*job, 0);
  auto generate = [&](const std::string& name) {
    const std::string command = std::string(DS_BIN_DIR) + "/ds-generate --checkpoint '" + job->run_directory() +
                                "' --prompt 'The License' --tokens 40 --seed 3 > '" + training.path(name) + "' 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream file(training.path(name), std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  };
  const std::string text = generate("a.txt");
  CHECK(text.size() >= 40);
  CHECK(text.find("The License") != std::string::npos);
  CHECK(generate("b.txt") == text);
}

}  // namespace
}  // namespace ds::test
