// Promise: where the host's updates wait for the norm and are done beside the next step's forward, they are the exact
// ones: losses, gradient norms, parameters and optimizer state are bit for bit those of no offloading at every step,
// whoever reads them in between, and whatever is skipped.
#include "runtime/base/failpoint.h"
#include "test/catch.h"
#include "test/layout/offload.h"

namespace ds::layout_test {
namespace {

/// Why updates wait.
enum class Why { clipping, fp16, on_nan };

struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

/// Six steps: validated after the second and fourth and last, checkpoints after the third and last.
JobSpec Late(Why why) {
  JobSpec spec = TinySpec();
  spec.training.steps = 6;
  spec.data.validation = spec.data.train;
  spec.training.validate_every = 2;
  spec.training.validate_batches = 1;
  spec.checkpoint.every = 3;
  spec.checkpoint.async = why == Why::clipping;
  spec.zero.reduce_bucket_size = 3000;
  spec.zero.max_live_parameters = 30'000;
  spec.precision = why == Why::fp16 ? Precision::fp16 : why == Why::clipping ? Precision::bf16 : Precision::fp32;
  spec.gradient_clipping = why == Why::clipping ? 0.5 : 0;
  spec.training.on_nan = why == Why::on_nan ? OnNan::skip : OnNan::stop;
  spec.loss_scale.initial_power = 24;  // the first steps overflow
  spec.loss_scale.hysteresis = 1;
  return spec;
}

/// The third step of rank 1 has a gradient that is not finite, and is skipped.
std::string SpoilsAStep(Why why) { return why == Why::on_nan ? "step:3/BackwardWeight layer0.mlp mb0,rank=1,nan" : ""; }

void RequireSameValidation(const RunOutcome& a, const RunOutcome& b) {
  REQUIRE(a.records.size() == b.records.size());
  for (size_t step = 0; step < a.records.size(); ++step)
    CHECK(a.records[step].validation_loss == b.records[step].validation_loss);
}

/// Nobody reads parameters between steps, then many do; both on the CPU and on a GPU that is none.
void RequireExact(const JobSpec& spec, const Offload& offload, const std::string& spoil) {
  const Failpoints failpoints(spoil);
  JobSpec quiet = spec;
  quiet.training.validate_every = 0;
  quiet.checkpoint.every = 0;
  const RunOutcome alone = Run(quiet, RunOptions{.ranks = 2}), read = Run(spec, RunOptions{.ranks = 2});
  for (const bool gpu : {false, true}) {
    CAPTURE(gpu);
    const RunOptions options = gpu ? OnFakeGpus(2) : RunOptions{.ranks = 2};
    RequireSame(alone, Run(With(quiet, offload), options));
    RunOptions kept = options;
    kept.directory = NewDirectory();
    const RunOutcome moved = Run(With(spec, offload), kept);
    RequireSame(read, moved);
    RequireSameValidation(read, moved);
    CHECK(moved.result.measured.bytes_moved.at("Fetch") == moved.result.predicted.bytes_moved.at("Fetch"));
    CHECK(moved.result.measured.bytes_moved.at("Store") == moved.result.predicted.bytes_moved.at("Store"));
    RunOptions resumed = options;
    resumed.resume = kept.directory + "/checkpoints/step-3";
    const RunOutcome on = Run(With(spec, offload), resumed);
    REQUIRE(on.error == "");
    REQUIRE(on.losses().size() == 3);
    CHECK(on.losses()[0] == read.losses()[3]);
    CHECK(on.losses()[2] == read.losses()[5]);
    CHECK(on.state == read.state);
  }
}

TEST_CASE("late updates are exact: clipping, fp16 and skipped steps, on every tier, under ZeRO 1 to 3") {
  const Why why = GENERATE(Why::clipping, Why::fp16, Why::on_nan);
  uint32_t draw = static_cast<uint32_t>(why);
  for (const OffloadTarget optimizer : {kCpu, kNvme}) {
    for (int stage = 1; stage <= 3; ++stage) {
      for (const OffloadTarget param : {kNone, kCpu, kNvme}) {
        if (param != kNone && stage < 3) continue;
        JobSpec spec = Late(why);
        spec.zero.stage = stage;
        // A part of the optimizer, accumulation, recomputation: drawn, so that each comes with each of the others.
        const uint32_t way = draw = draw * 5 + 3;
        const double ratio = way & 8 ? 0.6 : 1;
        spec.batch.accumulation = way & 16 ? 2 : 1;
        spec.training.recompute = way & 32 ? RecomputeMode::full : RecomputeMode::none;
        CAPTURE(static_cast<int>(why), static_cast<int>(optimizer), stage, static_cast<int>(param), ratio,
                spec.batch.accumulation, static_cast<int>(spec.training.recompute));
        RequireExact(spec, {optimizer, param, kNone, ratio}, SpoilsAStep(why));
      }
    }
  }
}

TEST_CASE("late updates of one rank and of three, of tied and untied heads, beside offloaded activations") {
  const int ranks = GENERATE(1, 3);
  for (JobSpec spec : {TinySpec(), TinyLlama()}) {
    spec.training.steps = 5;
    spec.gradient_clipping = 0.5;
    spec.precision = Precision::bf16;
    spec.zero.param_persistence_threshold = 0;
    spec.zero.reduce_bucket_size = 1000;
    for (int stage = 1; stage <= 3; ++stage) {
      CAPTURE(ranks, stage);
      spec.zero.stage = stage;
      const RunOutcome first = Run(spec, RunOptions{.ranks = ranks});
      for (const Offload& offload : {Offload{kCpu, kNone, kCpu}, Offload{kNvme, stage == 3 ? kNvme : kNone, kNvme}}) {
        RequireSame(first, Run(With(spec, offload), RunOptions{.ranks = ranks}));
        RequireSame(first, Run(With(spec, offload), OnFakeGpus(ranks)));
      }
    }
  }
}

TEST_CASE("every optimizer's late update has its own step's rates") {
  for (OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::adagrad,
                             OptimizerKind::rmsprop}) {
    CAPTURE(static_cast<int>(kind));
    JobSpec spec = TinySpec();
    spec.training.steps = 6;
    spec.optimizer.kind = kind;
    spec.optimizer.momentum = kind == OptimizerKind::sgd || kind == OptimizerKind::rmsprop ? 0.9 : 0;
    spec.scheduler.kind = SchedulerKind::warmup_lr;  // each step has a learning rate of its own
    spec.scheduler.parameters = {
        {"warmup_min_lr", 1e-4}, {"warmup_max_lr", 3e-3}, {"warmup_num_steps", 10}, {"warmup_type", 1}};
    spec.gradient_clipping = 1;
    spec.zero.stage = 2;
    const RunOutcome first = Run(spec, RunOptions{.ranks = 2});
    REQUIRE(first.error == "");
    REQUIRE(first.records[2].lr != first.records[3].lr);
    for (const double ratio : {1.0, 0.5})  // 0.5: the device steps the rest by the rates of this step
      RequireSame(first, Run(With(spec, {kCpu, kNone, kNone, ratio}), RunOptions{.ranks = 2}));
  }
}

TEST_CASE("a step with nothing to update moves no optimizer state") {
  JobSpec spec = TinyLlama();  // untied: the sum of two gradients needs no Fetch
  spec.zero.stage = 2;
  spec.gradient_clipping = 1;
  spec.checkpoint.every = -1;
  for (const bool gpu : {false, true}) {
    CAPTURE(gpu);
    const RunOptions options = gpu ? OnFakeGpus(2) : RunOptions{.ranks = 2};
    spec.training.steps = 1;
    const RunOutcome one = Run(With(spec, {kNvme, kNone, kNone}), options);
    REQUIRE(one.error == "");
    CHECK(one.result.measured.bytes_moved.count("Fetch") == 0);
    spec.training.steps = 2;
    const RunOutcome two = Run(With(spec, {kNvme, kNone, kNone}), options);
    REQUIRE(two.error == "");
    CHECK(two.result.measured.bytes_moved.at("Fetch") == two.result.predicted.bytes_moved.at("Fetch"));
  }
}

}  // namespace
}  // namespace ds::layout_test
