// Promise: a number that is not finite is named: step, rank, segment, pass, and what it is, the first in the order of
// the plan, under every ZeRO stage and precision. A step that has one changes nothing that lasts.
#include <cmath>
#include <filesystem>

#include "runtime/base/failpoint.h"
#include "runtime/checkpoint/checkpoint.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int Count(const RunOutcome& run, const std::string& kind) {
  int count = 0;
  for (const auto& event : run.events) count += event.first == kind;
  return count;
}

JobSpec ShortSpec(int stage, Precision precision = Precision::fp32) {
  JobSpec spec = TinySpec();
  spec.training.steps = 4;
  spec.zero.stage = stage;
  spec.precision = precision;
  spec.model.dropout = 0.1;
  spec.batch.accumulation = 2;
  spec.loss_scale.initial_power = 8;
  spec.checkpoint.every = -1;
  return spec;
}

void RequireNamed(const RunOutcome& run, int ranks, int rank, const std::vector<std::string>& parts) {
  CAPTURE(run.error);
  CHECK(run.failed_ranks == ranks);
  REQUIRE(run.numerical);
  CHECK(run.numerical->first == "not_finite");
  CHECK(run.numerical->second == rank);
  CHECK(Contains(run.error, " on rank " + std::to_string(rank)));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(Contains(run.error, part));
  }
}

struct Injection {
  const char* action;
  const char* number;
  const char* named;
};

TEST_CASE("the first number that is not finite is named with step, rank, segment and pass under every stage") {
  const Injection injections[] = {
      {"Forward layer0.mlp mb1", "nan",
       "step 2: the output of segment layer0.mlp in the forward pass of micro-batch 1 is nan (element 0; plan action "},
      {"Forward head mb0", "inf", "step 2: the loss of segment head in the forward pass of micro-batch 0 is inf ("},
      {"BackwardInput layer1.attention mb1", "inf",
       "step 2: the gradient of the input of segment layer1.attention in the backward pass of micro-batch 1 is inf ("},
      {"BackwardWeight layer1.mlp mb0", "nan",
       "step 2: the gradient of parameter layers.1.mlp.norm.weight of segment layer1.mlp in the backward pass of "
       "micro-batch 0 is nan (element 0; "},
  };
  for (const Injection& injection : injections)
    for (int stage = 0; stage <= 3; ++stage) {
      CAPTURE(injection.action, stage);
      const Failpoints failpoints("step:2/" + std::string(injection.action) + ",rank=1," + injection.number);
      const RunOutcome run = Run(ShortSpec(stage), RunOptions{.ranks = 2});
      RequireNamed(run, 2, 1, {injection.named});
      CHECK(run.records.size() == 1);
    }
}

TEST_CASE("precision, recompute, exact sharding and three ranks change nothing of what is named") {
  const Failpoints failpoints("step:2/Forward layer0.attention mb1,rank=2,nan");
  for (Precision precision : {Precision::bf16, Precision::fp16}) {
    JobSpec spec = ShortSpec(3, precision);
    spec.training.recompute = RecomputeMode::full;
    RequireNamed(Run(spec, RunOptions{.ranks = 3}), 3, 2,
                 {"the output of segment layer0.attention in the forward pass of micro-batch 1 is nan"});
  }
  JobSpec spec = ShortSpec(1);
  spec.training.exact_sharding = true;
  RequireNamed(Run(spec, RunOptions{.ranks = 3}), 3, 2, {"layer0.attention"});

  spec = ShortSpec(2);
  spec.training.recompute = RecomputeMode::full;
  const Failpoints again("step:3/Recompute layer1.mlp mb0,rank=0,inf");
  RequireNamed(Run(spec, RunOptions{.ranks = 3}), 3, 0,
               {"step 3: saved tensor normed of segment layer1.mlp when the forward pass is computed again of "
                "micro-batch 0 is inf"});
  const Failpoints single("step:1/BackwardInput head mb0,rank=0,nan");
  RequireNamed(Run(ShortSpec(0), RunOptions{.ranks = 1}), 1, 0, {"the input of segment head in the backward pass"});
}

TEST_CASE("a sum over ranks that overflows is named where it is summed") {
  const Failpoints failpoints("step:2/Reduce layer1.mlp bucket 0 mb1,rank=1,inf");
  RequireNamed(Run(ShortSpec(2), RunOptions{.ranks = 2}), 2, 1,
               {"of segment layer1.mlp, summed over the ranks, in the backward pass of micro-batch 1 is inf"});
}

TEST_CASE("a parameter that is not finite is named with its owner") {
  // Spoiled by the step before, on the rank that owns it.
  for (Precision precision : {Precision::fp32, Precision::bf16})
    for (int stage = 1; stage <= 3; ++stage) {
      CAPTURE(stage);
      const Failpoints failpoints("step:2/OptimizerStep layer1.mlp,rank=1,inf");
      JobSpec spec = ShortSpec(stage, precision);
      spec.training.on_nan = OnNan::skip;  // which cannot help here
      RequireNamed(Run(spec, RunOptions{.ranks = 2}), 2, 1,
                   {"step 3: parameter layers.1.mlp.", " of segment layer1.mlp ", " is inf (element ",
                    "cannot mend a parameter"});
    }
  // Under stage 0 every rank has its own: the one that is spoiled is named.
  const Failpoints failpoints("step:2/OptimizerStep layer1.mlp,rank=1,nan");
  RequireNamed(Run(ShortSpec(0), RunOptions{.ranks = 2}), 2, 1, {"step 3: parameter layers.1.mlp."});
}

TEST_CASE("a skipped step leaves no trace in what follows, and is an event of the rank that it is about") {
  JobSpec spec = ShortSpec(3);
  spec.training.on_nan = OnNan::skip;
  spec.checkpoint.every = 0;
  RunOutcome run;
  {
    const Failpoints failpoints("step:2/BackwardWeight layer0.attention mb1,rank=1,nan");
    run = Run(spec, RunOptions{.ranks = 2});
  }
  CHECK(run.error == "");
  REQUIRE(run.records.size() == 4);
  CHECK(run.records[1].skipped);
  CHECK_FALSE(run.records[2].skipped);
  REQUIRE(Count(run, "nan_skipped") == 1);
  const auto event =
      std::find_if(run.events.begin(), run.events.end(), [](const auto& some) { return some.first == "nan_skipped"; });
  CHECK(Contains(event->second, "step 2: "));
  CHECK(Contains(event->second, "segment layer0.attention"));
  CHECK(Contains(event->second, "on rank 1"));

  // The same without a fault, and one whose forward was at fault: the parameters that are left are the same bits.
  const Failpoints failpoints("step:2/Forward layer1.mlp mb0,rank=0,inf");
  const RunOutcome forward = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(forward.records.size() == 4);
  CHECK(std::isnan(forward.records[1].loss));
  for (size_t step : {0, 2, 3}) CHECK(forward.records[step].loss == run.records[step].loss);
  REQUIRE_FALSE(run.state.empty());
  CHECK(forward.state == run.state);
}

TEST_CASE("steps that are skipped one after another end the job") {
  JobSpec spec = ShortSpec(2);
  spec.training.on_nan = OnNan::skip;
  spec.training.steps = 100;
  const Failpoints failpoints("step:*/Forward layer1.mlp mb0,rank=1,nan");
  const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
  RequireNamed(run, 2, 1, {"step 20: ", "20 steps in a row were skipped"});
  CHECK(run.records.size() == 19);
  CHECK(Count(run, "nan_skipped") == 20);
}

TEST_CASE("numbers that are finite when the step is computed again are a suspicion against the hardware") {
  for (const char* action : {"Forward layer1.attention mb1", "BackwardWeight layer1.attention mb1"}) {
    CAPTURE(action);
    JobSpec spec = ShortSpec(2);
    spec.training.on_nan = OnNan::skip;
    const Failpoints failpoints("step:3/" + std::string(action) + ",rank=1,hit=1,nan");
    const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
    CHECK(run.error == "");
    CHECK(run.records.size() == 4);
    CHECK(Count(run, "nan_skipped") == 1);
    REQUIRE(Count(run, "hardware_suspected") == 1);
    for (const auto& event : run.events) {
      if (event.first != "hardware_suspected") continue;
      CHECK(Contains(event.second, "step 3: numbers were not finite, but are when the same step is computed again"));
      if (std::string(action) == "Forward layer1.attention mb1") CHECK(Contains(event.second, "of rank 1"));
    }
  }
}

TEST_CASE("a machine that is suspected ends a job that stops, with advice of its own") {
  const Failpoints failpoints("step:2/BackwardInput layer1.mlp mb0,rank=1,hit=1,inf");
  const RunOutcome run = Run(ShortSpec(3), RunOptions{.ranks = 2});
  REQUIRE(run.numerical);
  CHECK(run.numerical->first == "not_finite");
  CHECK(Contains(run.error, "step 2: numbers were not finite, but are when"));
  CHECK(Contains(run.error, "Check that machine"));
  CHECK(run.failed_ranks == 2);
  CHECK(Count(run, "hardware_suspected") == 1);
}

TEST_CASE("a watched step finds nothing where nothing is wrong, in memory full of NaN") {
  struct Layout {
    int stage;
    Precision precision;
    RecomputeMode recompute;
    bool llama;
  };
  const Layout layouts[] = {{0, Precision::fp16, RecomputeMode::full, false},
                            {1, Precision::fp32, RecomputeMode::none, true},
                            {2, Precision::bf16, RecomputeMode::attention, true},
                            {2, Precision::bf16, RecomputeMode::activation, true},
                            {3, Precision::bf16, RecomputeMode::full, false}};
  for (const Layout& layout : layouts) {
    CAPTURE(layout.stage);
    JobSpec spec = ShortSpec(layout.stage, layout.precision);
    if (layout.llama) spec.model = TinyLlama().model;
    spec.training.recompute = layout.recompute;
    spec.training.exact_sharding = layout.stage == 1;
    spec.training.on_nan = OnNan::skip;
    const Failpoints failpoints("arena,nan;step:1/Forward head mb1,rank=1,hit=1,nan");
    const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
    CHECK(run.error == "");
    CHECK(Count(run, "hardware_suspected") == 1);
    CHECK(run.records.size() == 4);
  }
}

TEST_CASE("a run that diverges is stopped, and its checkpoints hold finite numbers only") {
  JobSpec spec = TinySpec();
  spec.gradient_clipping = 0;
  spec.optimizer.kind = OptimizerKind::sgd;
  spec.optimizer.lr = 1e30;
  spec.zero.stage = 2;
  RunOutcome run = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(run.numerical);
  CHECK(Contains(run.error, "step 2: "));
  CHECK(Contains(run.error, "training.on_nan"));

  // Step 2's update spoils a parameter, and step 2 is to be saved: what step 1 left stays the last checkpoint.
  spec = ShortSpec(2);
  spec.checkpoint.every = 1;
  const RunOptions options{.ranks = 2, .directory = NewDirectory()};
  const Failpoints failpoints("step:2/OptimizerStep layer1.mlp,rank=1,nan");
  run = Run(spec, options);
  RequireNamed(run, 2, 1, {"checkpoint of step 2: the master of parameter layers.1.mlp.", "nothing was written"});
  const CheckpointReader reader(options.directory + "/checkpoints/step-1");
  CHECK(reader.state().step == 1);
  CHECK_FALSE(std::filesystem::exists(options.directory + "/checkpoints/step-2"));
}

JobSpec HalfSpec() {
  JobSpec spec = ShortSpec(2, Precision::fp16);
  spec.loss_scale.initial_power = 10;
  spec.loss_scale.hysteresis = 1;
  spec.loss_scale.min_scale = 256;
  spec.training.steps = 8;
  return spec;
}

TEST_CASE("an overflow of scaled gradients lowers the scale; its floor is an event, an overflow there ends the job") {
  const std::string overflow = "/BackwardWeight layer0.mlp mb0,rank=1,inf";
  {
    const Failpoints failpoints("step:2" + overflow + ";step:3" + overflow);
    const RunOutcome run = Run(HalfSpec(), RunOptions{.ranks = 2});
    CHECK(run.error == "");
    REQUIRE(run.records.size() == 8);
    CHECK(run.records[1].skipped);
    CHECK(run.records[2].skipped);
    CHECK(*run.records[1].loss_scale == 1024);
    CHECK(*run.records[2].loss_scale == 512);
    CHECK(*run.records[3].loss_scale == 256);
    CHECK(Count(run, "overflow") == 2);
    CHECK(Count(run, "loss_scale_floor") == 1);
    CHECK(Count(run, "nan_skipped") == 0);
  }
  const Failpoints failpoints("step:2" + overflow + ";step:3" + overflow + ";step:5" + overflow);
  const RunOutcome run = Run(HalfSpec(), RunOptions{.ranks = 2});
  REQUIRE(run.numerical);
  CHECK(*run.numerical == std::pair<std::string, int>("loss_scale", 1));
  CHECK(Contains(run.error, "step 5: gradients overflow at the smallest loss scale (fp16.min_loss_scale = 256)"));
  CHECK(Contains(run.error, "of segment layer0.mlp in the backward pass of micro-batch 0 is inf"));
  CHECK(run.failed_ranks == 2);
  CHECK(run.records.size() == 4);
}

TEST_CASE("a fixed loss scale that overflows each step is told now and then, and ends the job") {
  JobSpec spec = HalfSpec();
  spec.loss_scale.fixed = 1024;
  spec.training.steps = 40;
  const Failpoints failpoints("step:*/BackwardWeight layer0.mlp mb0,rank=0,nan");
  const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(run.numerical);
  CHECK(*run.numerical == std::pair<std::string, int>("loss_scale", 0));
  CHECK(Contains(run.error, "20 steps in a row overflowed at the fixed loss scale 1024"));
  CHECK(Count(run, "overflow") == 20);
}

TEST_CASE("frequent overflows are summed up") {
  JobSpec spec = HalfSpec();
  spec.loss_scale.fixed = 1024;
  spec.training.steps = 200;
  // Every other step, 100 of them.
  std::string entries;
  for (int step = 2; step <= 200; step += 2)
    entries += "step:" + std::to_string(step) + "/BackwardWeight layer0.mlp mb0,rank=0,nan;";
  const Failpoints failpoints(entries);
  const RunOutcome run = Run(spec, RunOptions{.ranks = 1});
  CHECK(run.error == "");
  CHECK(Count(run, "overflow") == 21);  // steps 2 to 40, and 140
  CHECK(Contains(run.events.back().second, "50 overflows since step 40"));
}

TEST_CASE("in fp16 a loss that is not finite is no overflow: no loss scale mends it") {
  JobSpec spec = HalfSpec();
  spec.training.on_nan = OnNan::skip;
  const Failpoints failpoints("step:2/Forward layer1.mlp mb0,rank=1,inf");
  const RunOutcome run = Run(spec, RunOptions{.ranks = 2});
  CHECK(run.error == "");
  REQUIRE(run.records.size() == 8);
  CHECK(run.records[1].skipped);
  CHECK(*run.records[2].loss_scale == 1024);
  CHECK(Count(run, "overflow") == 0);
  CHECK(Count(run, "nan_skipped") == 1);
}

}  // namespace
}  // namespace ds::layout_test
