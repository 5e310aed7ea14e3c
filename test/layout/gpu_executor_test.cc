// Promise: what GpuExecutor enqueues is the plan. On a GPU that is none, with the CPU's kernels, it gives the bits of
// HostExecutor under every ZeRO stage, and ends as it does when numbers are not finite or a rank fails.
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

RunOptions OnFakeGpus(int ranks) {
  RunOptions options{.ranks = ranks};
  options.gpu = [](int) { return MakeFakeGpu(); };
  return options;
}

TEST_CASE("the GPU executor gives the host executor's bits under every stage") {
  const int ranks = GENERATE(1, 2, 3);
  const int stage = GENERATE(0, 1, 2, 3);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  CAPTURE(ranks, stage, static_cast<int>(precision));
  JobSpec spec = TinySpec();
  spec.precision = precision;
  spec.zero.stage = stage;
  spec.gradient_clipping = 0.5;
  const RunOutcome host = Run(spec, RunOptions{.ranks = ranks});
  const RunOutcome gpu = Run(spec, OnFakeGpus(ranks));
  REQUIRE(host.error == "");
  REQUIRE(gpu.error == "");
  RequireSame(host, gpu);
}

TEST_CASE("so it does with accumulation, recomputation, dropout, validation and in LLaMA's shape") {
  JobSpec spec = TinyLlama();
  spec.model.dropout = 0.1;
  spec.training.recompute = RecomputeMode::full;
  spec.batch.accumulation = 2;
  spec.zero.stage = GENERATE(1, 3);
  spec.zero.reduce_bucket_size = 1000;
  CAPTURE(spec.zero.stage);
  RequireSame(Run(spec, RunOptions{.ranks = 2}), Run(spec, OnFakeGpus(2)));
}

TEST_CASE("fp16 skips the same steps") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::fp16;
  spec.loss_scale.initial_power = 24;  // too large at first
  const RunOutcome host = Run(spec, RunOptions{.ranks = 2}), gpu = Run(spec, OnFakeGpus(2));
  REQUIRE(gpu.error == "");
  CHECK(gpu.records.front().skipped);
  CHECK_FALSE(gpu.records.back().skipped);
  RequireSame(host, gpu);
}

}  // namespace
}  // namespace ds::layout_test
