// Promise: what GpuExecutor enqueues is the plan. On a GPU that is none, with the CPU's kernels, it gives the bits of
// HostExecutor under every ZeRO stage, and ends as it does when numbers are not finite or a rank fails.
#include <cstring>

#include "runtime/exec/bind.h"
#include "runtime/plan/planner.h"
#include "runtime/segments/rope_tables.h"
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
  if (stage % 2) spec.training.recompute = RecomputeMode::full;  // others: in LLaMA's shape, below
  const RunOutcome host = Run(spec, RunOptions{.ranks = ranks});
  const RunOutcome gpu = Run(spec, OnFakeGpus(ranks));
  REQUIRE(host.error == "");
  REQUIRE(gpu.error == "");
  RequireSame(host, gpu);
}

TEST_CASE("a single rank with a GPU asks no communicator for anything but facts") {
  JobSpec spec = TinySpec();
  spec.zero.stage = GENERATE(0, 1, 2, 3);
  spec.batch.accumulation = 2;
  spec.training.exact_sharding = GENERATE(false, true);
  CAPTURE(spec.zero.stage, spec.training.exact_sharding);
  RunOptions options = OnFakeGpus(1);
  options.decorate = [](const std::string& stream, std::unique_ptr<Communicator> made) {
    return stream == "gather" || stream == "reduce" ? nullptr : std::move(made);
  };
  RequireSame(Run(spec, RunOptions{.ranks = 1}), Run(spec, options));
}

TEST_CASE("so it does with accumulation, recomputation, dropout, validation and in LLaMA's shape") {
  JobSpec spec = TinyLlama();
  spec.model.dropout = 0.1;
  spec.training.recompute =
      GENERATE(RecomputeMode::none, RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full);
  spec.batch.accumulation = 2;
  spec.zero.stage = GENERATE(1, 3);
  spec.zero.reduce_bucket_size = 1000;
  CAPTURE(spec.zero.stage, static_cast<int>(spec.training.recompute));
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

TEST_CASE("RoPE's tables lie on the GPU that turns by them") {
  const Device device{DeviceKind::cuda, 3};
  const std::unique_ptr<Gpu> gpu = MakeFakeGpu(device);
  const auto host = SharedRopeTables(1e4, 7, 6, DType::f32, nullptr);
  const auto tables = SharedRopeTables(1e4, 7, 6, DType::f32, gpu.get());
  CHECK((tables->cos().device == device));
  CHECK((tables->sin().device == device));
  CHECK((host->cos().device == Device{}));
  for (const auto& [got, want] : {std::pair{tables->cos(), host->cos()}, std::pair{tables->sin(), host->sin()}}) {
    REQUIRE(got.shape == want.shape);
    CHECK(std::memcmp(got.data, want.data, static_cast<size_t>(want.bytes())) == 0);
  }
  CHECK(SharedRopeTables(1e4, 7, 6, DType::f32, gpu.get()) == tables);
}

TEST_CASE("Recompute needs no scratch, where a GPU fuses GELU with a product either: GELU's output is saved") {
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  const Activation activation = GENERATE(Activation::gelu, Activation::gelu_tanh, Activation::swiglu);
  JobSpec spec = TinySpec();
  spec.precision = precision;
  spec.model.activation = activation;
  spec.training.recompute = RecomputeMode::full;
  spec.batch.micro_batch_size = 6;
  spec.batch.accumulation = 1;
  for (DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    const ModelLayout layout = LayoutOf(spec, 2);
    const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, 1, 2, device));
    int mlps = 0;
    for (const Action& action : plan.actions) {
      if (action.kind != ActionKind::recompute) continue;
      CHECK(action.Find(Operand::scratch) == nullptr);
      const SegmentSpec& segment = layout.segments[static_cast<size_t>(action.segment)];
      if (segment.kind != SegmentKind::mlp) continue;
      CHECK((segment.saved.back().name == "activated") == (activation != Activation::swiglu));
      CHECK(plan.buffers[static_cast<size_t>(action.Find(Operand::saved)->buffer)].bytes == LayOut(segment.saved));
      ++mlps;
    }
    CHECK(mlps == spec.model.layers);
  }
}

TEST_CASE("every action of a GPU's plan binds, under every stage: NCCL needs no workspace of the plan's") {
  const int ranks = GENERATE(1, 2);
  const RecomputeMode recompute = GENERATE(RecomputeMode::none, RecomputeMode::activation, RecomputeMode::full);
  const int64_t accumulation = GENERATE(1, 2);
  for (JobSpec spec : {TinySpec(), TinyLlama()})
    for (int stage = 0; stage <= 3; ++stage)
      for (bool exact : {false, true}) {
        CAPTURE(ranks, stage, exact, accumulation, static_cast<int>(recompute), static_cast<int>(spec.model.norm));
        spec.batch.micro_batch_size = 3;
        spec.batch.accumulation = accumulation;
        spec.training.exact_sharding = exact;
        spec.training.recompute = recompute;
        spec.zero.stage = stage;
        const ModelLayout layout = LayoutOf(spec, ranks);
        const Plan plan = BuildPlan(layout, PlanOptionsOf(spec, ranks - 1, ranks, DeviceKind::cuda));
        const ParamStore store(layout, plan);
        const Arena arena({&plan});
        const BindContext context{layout, plan, store, arena, {3, 16}, spec.model.hidden};
        for (const BoundAction& bound : Bind(context)) CHECK((!bound.workspace || bound.workspace.numel() == 0));
      }
}

}  // namespace
}  // namespace ds::layout_test
