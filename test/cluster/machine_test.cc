// Promise: a machine file that ds-launch is given reaches every worker, is kept in the run directory, and is what a
// resume goes on with.
#include <filesystem>
#include <fstream>

#include "runtime/base/cpu_name.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/plan/machine_file.h"
#include "test/catch.h"
#include "test/fault/launched_job.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

/// Runs the job in `folder` to its end. Two workers.
std::unique_ptr<LaunchedJob> Launch(const std::string& folder, std::vector<std::string> arguments, int code = 0) {
  LaunchSetting setting;
  setting.arguments = {folder + "/job.yaml", "--output", folder + "/runs", "--num-gpus", "2"};
  setting.arguments.insert(setting.arguments.end(), arguments.begin(), arguments.end());
  setting.environment["DS_WORKER_PROGRAM"] = std::string(DS_BIN_DIR) + "/ds-worker";
  setting.shared_output = true;
  auto job = std::make_unique<LaunchedJob>(setting);
  const int ended = job->Wait(120);
  INFO(job->output());
  REQUIRE(ended == code);
  return job;
}

double PredictedMs(const LaunchedJob& job) { return AsDouble(*job.Summary().Find("predicted")->Find("step_ms")); }

TEST_CASE("a machine file prices, gives mfu, is kept, and goes on in a resume") {
  const TemporaryFolder folder;
  fs::copy_file(fs::path(DS_SOURCE_DIR) / "LICENSE", folder.path() + "/text.txt");
  std::ofstream(folder.path() + "/job.yaml")
      << "job: {name: small}\nmodel: {preset: gpt2-tiny}\ndata: {train: text.txt, sequence_length: 32}\n"
         "training: {steps: 2, device: cpu}\n"
         "deepspeed: {train_batch_size: 4, train_micro_batch_size_per_gpu: 2, optimizer: {type: AdamW}}\n";
  MachineFile file;
  file.host = "here";
  file.device.name = CpuName();
  file.peak_flops[DType::f32] = 1e12;
  file.matmul = {{DType::f32, 64, 64, 64, false, true, 1e5}};  // far slower than any: the price must be the file's
  std::ofstream(folder.path() + "/machine.yaml") << ToYaml(file);

  const auto without = Launch(folder.path(), {});
  CHECK(without->Lines("metrics.jsonl")[0].Find("mfu")->is_null());
  CHECK_FALSE(fs::exists(without->run_directory() + "/machine.yaml"));

  const auto with = Launch(folder.path(), {"--machine", folder.path() + "/machine.yaml"});
  CHECK(AsDouble(*with->Lines("metrics.jsonl")[0].Find("mfu")) > 0);
  CHECK(ReadMachineFile(with->run_directory() + "/machine.yaml") == file);
  CHECK(PredictedMs(*with) > 100 * PredictedMs(*without));
  CHECK_FALSE(with->HasEvent("machine"));

  const auto resumed = Launch(folder.path(), {"--resume", with->run_directory(), "--set", "training.steps=3"});
  CHECK(ReadMachineFile(resumed->run_directory() + "/machine.yaml") == file);
  CHECK(AsDouble(*resumed->Lines("metrics.jsonl")[0].Find("mfu")) > 0);
  CHECK_FALSE(resumed->HasEvent("machine"));

  file.device = {DeviceKind::cuda, "NVIDIA H200", 8, 0, "", "", "", 0};
  std::ofstream(folder.path() + "/machine.yaml") << ToYaml(file);
  const auto other = Launch(folder.path(), {"--resume", with->run_directory(), "--set", "training.steps=3", "--machine",
                                            folder.path() + "/machine.yaml"});
  std::string told;
  for (const Value& event : other->Lines("events.jsonl"))
    if (AsString(*event.Find("event")) == "machine") told += AsString(*event.Find("message")) + "\n";
  CHECK(told.find("had another machine file") != std::string::npos);
  CHECK(told.find("nothing of it is used") != std::string::npos);
  CHECK(PredictedMs(*other) == PredictedMs(*without));

  // The run's own copy is damaged: a resume wants to be told what to take, and then takes it.
  std::ofstream(with->run_directory() + "/machine.yaml") << "format: [\n";
  const std::vector<std::string> resume = {"--resume", with->run_directory(), "--set", "training.steps=3"};
  const auto refused = Launch(folder.path(), resume, 2);
  CHECK(refused->output().find("give another with --machine FILE") != std::string::npos);
  std::vector<std::string> named = resume;
  named.insert(named.end(), {"--machine", folder.path() + "/machine.yaml"});
  CHECK(Launch(folder.path(), named)->HasEvent("machine"));
}

}  // namespace
}  // namespace ds::test
