// Promise: what goes wrong with a tier is named and loses nothing: a failing or full disk, one that is slow, a folder
// that is not there or goes away, numbers that are not finite, a failure on any stream.
#include <filesystem>

#include "runtime/base/failpoint.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Everything in files, in a folder of its own.
JobSpec InFiles() {
  JobSpec spec = TinySpec();
  spec.training.steps = 8;
  spec.precision = Precision::bf16;
  spec.zero.stage = 3;
  spec.zero.param_persistence_threshold = 0;
  spec.zero.offload_optimizer = spec.zero.offload_param = OffloadTarget::nvme;
  spec.memory.offload_activations = OffloadTarget::nvme;
  spec.memory.nvme_path = {NewDirectory()};
  std::filesystem::create_directories(spec.memory.nvme_path[0]);
  return spec;
}

RunOptions Options(bool gpu) {
  RunOptions options{.ranks = 2};
  if (gpu) options.gpu = [](int) { return MakeFakeGpu(); };
  return options;
}

TEST_CASE("a failure on any stream of a tier ends all ranks and names rank, step and action") {
  const bool gpu = GENERATE(false, true);
  const double clip = GENERATE(0.0, 1.0);
  JobSpec spec = InFiles();
  spec.gradient_clipping = clip;
  for (const char* action : {"Fetch layer1.mlp/working*", "Fetch layer1.mlp/master*", "Store layer1.mlp/gradient*",
                             "Store layer0.attention mb0", "Store layer0.mlp/moment2*", "Squares layer1.attention*",
                             "OptimizerStep layer0.attention*", "Forward layer1.mlp*"}) {
    CAPTURE(action, gpu, clip);
    const Failpoints failpoints("step:2/" + std::string(action) + ",rank=1,throw");
    const RunOutcome run = Run(spec, Options(gpu));
    CHECK(run.failed_ranks == 2);
    CHECK(Contains(run.error, "failpoint step:2/"));
    CHECK(Contains(run.error, "rank 1, step 2, action "));
    CHECK(run.records.size() <= 2);
    CHECK(std::filesystem::is_empty(spec.memory.nvme_path[0]));
  }
}

TEST_CASE("a disk that fails or is full in mid-step is named; the last checkpoint goes on bit for bit") {
  const bool gpu = GENERATE(false, true);
  const double clip = GENERATE(0.0, 1.0);  // 1: what is stepped on the host is so in the next step
  JobSpec spec = InFiles();
  spec.gradient_clipping = clip;
  spec.checkpoint.every = 2;
  const RunOutcome whole = Run(spec, Options(gpu));
  REQUIRE(whole.error == "");
  for (const auto& [failpoint, text] : {std::pair{"file_tier.write,hit=900,enospc", "No space left on device"},
                                        std::pair{"file_tier.write,hit=900,eio", "Input/output error"},
                                        std::pair{"file_tier.read,hit=900,eio", "Input/output error"}}) {
    CAPTURE(failpoint, gpu, clip);
    RunOptions options = Options(gpu);
    options.directory = NewDirectory();
    RunOutcome failed;
    {
      const Failpoints failpoints(failpoint);
      failed = Run(spec, options);
    }
    REQUIRE(failed.failed_ranks == 2);
    CHECK(Contains(failed.error, text));
    CHECK(Contains(failed.error, spec.memory.nvme_path[0]));
    CHECK(failed.records.size() >= 2);
    CHECK(failed.records.size() < 8);
    CHECK(std::filesystem::is_empty(spec.memory.nvme_path[0]));
    const std::filesystem::path latest = std::filesystem::path(options.directory) / "checkpoints" / "latest";
    REQUIRE(std::filesystem::exists(latest));
    RunOptions again = Options(gpu);
    again.resume = std::filesystem::canonical(latest);
    const RunOutcome resumed = Run(spec, again);
    REQUIRE(resumed.error == "");
    CHECK(resumed.state == whole.state);
  }
}

TEST_CASE("an update that fails halfway, in the next step or before a checkpoint, loses nothing") {
  const bool gpu = GENERATE(false, true);
  JobSpec spec = InFiles();
  spec.gradient_clipping = 1;
  spec.checkpoint.every = 2;
  const RunOutcome whole = Run(spec, Options(gpu));
  REQUIRE(whole.error == "");
  // Updates of step 4 are a part of step 5, whether it does them or the checkpoint of step 4 wants them.
  for (const auto& [failpoint, checkpoint] :
       {std::pair{"step:4/OptimizerStep layer0.mlp bucket 0 of the step before,rank=1,throw", "step-2"},
        std::pair{"step:4/Store layer1.mlp/moment1*of the step before,rank=0,throw", "step-2"},
        std::pair{"step:5/OptimizerStep layer0.mlp bucket 0 of the step before,rank=0,throw", "step-2"},
        std::pair{"step:6/Fetch head/master*of the step before,rank=1,throw", "step-4"}}) {
    CAPTURE(failpoint, gpu);
    RunOptions options = Options(gpu);
    options.directory = NewDirectory();
    RunOutcome failed;
    {
      const Failpoints failpoints(failpoint);
      failed = Run(spec, options);
    }
    REQUIRE(failed.failed_ranks == 2);
    CHECK(Contains(failed.error, "of the step before: "));
    const std::filesystem::path latest = std::filesystem::path(options.directory) / "checkpoints" / "latest";
    RunOptions again = Options(gpu);
    again.resume = std::filesystem::canonical(latest);
    CHECK(std::filesystem::path(again.resume).filename() == checkpoint);
    const RunOutcome resumed = Run(spec, again);
    REQUIRE(resumed.error == "");
    CHECK(resumed.state == whole.state);
  }
}

TEST_CASE("a slow disk changes the time alone") {
  JobSpec spec = InFiles();
  spec.training.steps = 2;
  const RunOutcome fast = Run(spec, Options(false));
  REQUIRE(fast.error == "");
  const Failpoints failpoints("file_tier.*,slow=1");
  RequireSame(fast, Run(spec, Options(false)));
  RequireSame(fast, Run(spec, Options(true)));
}

TEST_CASE("a folder that is not there is named before the first step; one that goes away is not missed") {
  JobSpec spec = InFiles();
  const RunOutcome whole = Run(spec, Options(false));
  RunOptions options = Options(false);
  options.on_step = [&](int rank, const StepRecord& record) {
    if (rank == 0 && record.step == 2) std::filesystem::remove_all(spec.memory.nvme_path[0]);
  };
  RequireSame(whole, Run(spec, options));
  CHECK_FALSE(std::filesystem::exists(spec.memory.nvme_path[0]));

  const RunOutcome absent = Run(spec, Options(false));
  CHECK(absent.records.empty());
  CHECK(Contains(absent.error, spec.memory.nvme_path[0]));
  CHECK(Contains(absent.error, "No such file or directory"));
}

TEST_CASE("gradients that are not finite end the job with their origin, whatever was stepped by then") {
  const bool gpu = GENERATE(false, true);
  for (double clip : {0.0, 1.0}) {
    CAPTURE(gpu, clip);
    JobSpec spec = InFiles();
    spec.gradient_clipping = clip;
    const Failpoints failpoints("step:3/BackwardWeight layer0.mlp mb0,rank=1,nan");
    const RunOutcome run = Run(spec, Options(gpu));
    CHECK(run.records.size() == 2);
    REQUIRE(run.numerical);
    CHECK(run.numerical->first == "not_finite");
    CHECK(Contains(run.error, "segment layer0.mlp in the backward pass"));
    CHECK(Contains(run.error, clip == 0 ? "is stepped already" : "as step 2 left them"));
  }
}

TEST_CASE("a step whose numbers are not finite is skipped as it is without offloading") {
  const bool gpu = GENERATE(false, true);
  JobSpec spec = InFiles(), on_device = spec;
  on_device.zero.offload_optimizer = on_device.zero.offload_param = OffloadTarget::none;
  on_device.memory.offload_activations = OffloadTarget::none;
  const Failpoints failpoints("step:3/BackwardWeight layer0.mlp mb0,rank=1,nan");
  spec.training.on_nan = on_device.training.on_nan = OnNan::skip;
  const RunOutcome first = Run(on_device, Options(gpu)), moved = Run(spec, Options(gpu));
  REQUIRE(first.error == "");
  CHECK(first.records[2].skipped);
  RequireSame(first, moved);
}

TEST_CASE("the step before is updated once, whatever becomes of this one") {
  const bool gpu = GENERATE(false, true);
  JobSpec spec = InFiles(), on_device = spec;
  on_device.zero.offload_optimizer = on_device.zero.offload_param = OffloadTarget::none;
  on_device.memory.offload_activations = OffloadTarget::none;
  for (JobSpec* job : {&spec, &on_device}) {
    job->training.on_nan = OnNan::skip;
    job->checkpoint.every = 1;  // what parameters are after each step
  }
  // Refused behind an update, behind a refused one, and run again each time to find why.
  const Failpoints failpoints(
      "step:3/BackwardWeight layer0.mlp mb0,rank=1,nan;step:4/BackwardWeight layer1.attention mb0,rank=0,nan");
  RunOptions here = Options(gpu), there = Options(gpu);
  here.directory = NewDirectory(), there.directory = NewDirectory();
  const RunOutcome first = Run(on_device, here), moved = Run(spec, there);
  RequireSame(first, moved);
  for (size_t step = 0; step < 8; ++step) {
    CAPTURE(step, gpu);
    CHECK(moved.records[step].skipped == (step == 2 || step == 3));
    const std::string folder = "/checkpoints/step-" + std::to_string(step + 1);
    CHECK(ReadState(here.directory + folder) == ReadState(there.directory + folder));
  }
}

}  // namespace
}  // namespace ds::layout_test
