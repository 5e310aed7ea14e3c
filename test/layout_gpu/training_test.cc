// Promises, on real GPUs: a run repeated is bit-equal; ZeRO 0-3 are bit-equal over 20 steps; a GPU follows the CPU.
#include <cmath>

#include "test/catch.h"
#include "test/layout_gpu/gpu_runs.h"

namespace ds::layout_test {
namespace {

/// The largest difference of two series of losses, and the mean one.
struct Apart {
  double most = 0, mean = 0;
  Apart(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      const double apart = std::abs(a[i] - b[i]);
      most = std::max(most, apart);
      mean += apart / static_cast<double>(a.size());
    }
  }
};

/// Both compute with the same numbers in another order: rounding of fp32, or of 16 bits. That alone moves a loss by
/// some 2e-3 in bf16 (as far as the CPU's bf16 is from its fp32). But Adam makes a full step of a gradient that is
/// nothing but rounding, so the embedding of a byte that has hardly been seen may go either way: the step that meets it
/// next jumps, and comes back (by 0.03 between the CPU's bf16 and fp32 in TinySpec's job, in step 19).
void CheckFollows(const RunOutcome& cpu, const RunOutcome& gpu, Precision precision) {
  const Apart apart(cpu.losses(), gpu.losses());
  CHECK(apart.mean < (precision == Precision::fp32 ? 1e-4 : 1e-2));
  CHECK(apart.most < (precision == Precision::fp32 ? 1e-4 : 1e-1));
}

RunOutcome RunStage(JobSpec spec, int stage, const RunOptions& options) {
  spec.zero.stage = stage;
  const RunOutcome outcome = Run(spec, options);
  REQUIRE(outcome.error == "");
  REQUIRE(outcome.losses().size() == 20);
  return outcome;
}

TEST_CASE("one GPU follows the CPU, and repeats itself bit for bit") {
  for (const JobSpec& shape : {TinySpec(), TinyLlama()}) {
    for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      CAPTURE(static_cast<int>(precision), static_cast<int>(shape.model.norm));
      JobSpec spec = shape;
      spec.precision = precision;
      const RunOutcome cpu = RunStage(spec, 0, RunOptions{.ranks = 1});
      const RunOutcome gpu = RunStage(spec, 0, OnGpus(1));
      CheckFollows(cpu, gpu, precision);
      CHECK(gpu.losses().back() < gpu.losses().front() - 0.5);
      RequireSame(gpu, RunStage(spec, 0, OnGpus(1)));
    }
  }
}

/// Codes are the CPU's bit for bit as long as what is quantised is; a number that rounds the other way moves a product
/// by a step of 8 bits, 16 times those of bf16, among sums of many: losses stay as near as CheckFollows wants of bf16.
TEST_CASE("8-bit products: one GPU follows the CPU, repeats itself bit for bit, under every stage and recomputation") {
  for (const JobSpec& shape : {TinySpec(), TinyLlama()}) {
    CAPTURE(static_cast<int>(shape.model.norm));
    JobSpec spec = shape;
    spec.precision = Precision::bf16;
    spec.training.fp8 = true;
    const RunOutcome cpu = RunStage(spec, 0, RunOptions{.ranks = 1}), gpu = RunStage(spec, 0, OnGpus(1));
    CheckFollows(cpu, gpu, Precision::bf16);
    CHECK(gpu.losses().back() < gpu.losses().front() - 0.5);
    for (int stage = 0; stage <= 3; ++stage)
      for (RecomputeMode mode : {RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full}) {
        CAPTURE(stage, static_cast<int>(mode));
        spec.training.recompute = mode;
        RequireSame(gpu, RunStage(spec, stage, OnGpus(1)));
      }
    spec.training.fp8 = false;
    CHECK(Apart(gpu.losses(), RunStage(spec, 0, OnGpus(1)).losses()).most > 0);
  }
}

TEST_CASE("attention within documents: one GPU follows the CPU, and repeats itself bit for bit") {
  for (Precision precision : {Precision::fp32, Precision::bf16}) {
    CAPTURE(static_cast<int>(precision));
    JobSpec spec = OfDocuments(TinyLlama());
    spec.precision = precision;
    spec.model.hidden = 256;   // heads of 64: cuDNN's, were it asked
    spec.optimizer.lr = 3e-4;  // ten times that, and sums in another order move bf16 losses by 0.1 on the CPU alone
    spec.training.recompute = RecomputeMode::attention;
    const RunOutcome cpu = RunStage(spec, 0, RunOptions{.ranks = 1}), gpu = RunStage(spec, 0, OnGpus(1));
    CheckFollows(cpu, gpu, precision);
    RequireSame(gpu, RunStage(spec, 0, OnGpus(1)));
    spec.data.reset_attention = false;
    CHECK(Apart(gpu.losses(), RunStage(spec, 0, OnGpus(1)).losses()).most > 0);
  }
}

TEST_CASE("recomputation changes no bit on one GPU, where layers are fused with what follows them too") {
  for (const JobSpec& shape : {TinySpec(), TinyLlama()})
    for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      CAPTURE(static_cast<int>(precision), static_cast<int>(shape.model.norm));
      JobSpec spec = shape;
      spec.precision = precision;
      const RunOutcome kept = RunStage(spec, 0, OnGpus(1));
      for (RecomputeMode mode : {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full}) {
        spec.training.recompute = mode;
        RequireSame(kept, RunStage(spec, 0, OnGpus(1)));
      }
    }
}

TEST_CASE("stages agree bit for bit on one GPU") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::bf16;
  const RunOutcome first = RunStage(spec, 0, OnGpus(1));
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    RequireSame(first, RunStage(spec, stage, OnGpus(1)));
  }
}

TEST_CASE("stages agree bit for bit on two GPUs, with and without recomputation") {
  if (!HasGpus(2)) return;
  for (JobSpec spec : {TinySpec(), TinyLlama()}) {
    spec.precision = Precision::bf16;
    const RunOutcome first = RunStage(spec, 0, OnGpus(2));
    for (RecomputeMode mode : {RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full}) {
      for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage, static_cast<int>(mode), static_cast<int>(spec.model.norm));
        spec.training.recompute = mode;
        RequireSame(first, RunStage(spec, stage, OnGpus(2)));
      }
    }
  }
}

TEST_CASE("with accumulation all four agree under exact_sharding, on two GPUs") {
  if (!HasGpus(2)) return;
  JobSpec spec = TinySpec();
  spec.precision = Precision::bf16;
  spec.batch.accumulation = 3;
  spec.training.exact_sharding = true;
  const RunOutcome first = RunStage(spec, 0, OnGpus(2));
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage);
    RequireSame(first, RunStage(spec, stage, OnGpus(2)));
  }
}

TEST_CASE("a run resumed on GPUs goes on bit for bit") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::bf16;
  spec.checkpoint.every = 8;
  spec.checkpoint.keep = 10;
  const RunOutcome whole = RunStage(spec, 0, OnGpus(1));
  RunOptions options = OnGpus(1);
  options.directory = NewDirectory();
  options.stop_after = 8;
  const RunOutcome half = Run(spec, options);
  REQUIRE(half.error == "");
  RunOptions rest = OnGpus(1);
  rest.resume = half.result.checkpoint;
  const RunOutcome resumed = Run(spec, rest);
  REQUIRE(resumed.error == "");
  CHECK(resumed.state == whole.state);
}

TEST_CASE("a loss that is not finite ends a run on a GPU as it does on the CPU, with the segment named") {
  JobSpec spec = TinySpec();
  spec.optimizer.lr = 1e30;
  const RunOutcome cpu = Run(spec, RunOptions{.ranks = 1}), gpu = Run(spec, OnGpus(1));
  REQUIRE(cpu.numerical);
  REQUIRE(gpu.numerical);
  CHECK(gpu.numerical->first == cpu.numerical->first);
  CHECK(gpu.error.find("segment") != std::string::npos);
}

}  // namespace
}  // namespace ds::layout_test
