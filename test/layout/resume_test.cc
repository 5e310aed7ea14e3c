// Promise: a run that resumes continues the uninterrupted run bit for bit, on the layout that wrote the checkpoint and
// under any other ZeRO stage of the same width.
#include <algorithm>
#include <filesystem>

#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

/// The records of steps first..last.
RunOutcome Tail(RunOutcome run, int64_t first) {
  std::erase_if(run.records, [&](const StepRecord& record) { return record.step < first; });
  return run;
}

void RequireResumes(JobSpec spec, int ranks, int stage_before, int stage_after) {
  CAPTURE(ranks, stage_before, stage_after);
  spec.checkpoint.every = 7;
  spec.zero.stage = stage_after;
  const RunOutcome whole = Run(spec, RunOptions{.ranks = ranks});
  JobSpec half = spec;
  half.zero.stage = stage_before;
  half.training.steps = 7;
  const RunOutcome before = Run(half, RunOptions{.ranks = ranks});
  REQUIRE(before.error == "");
  const RunOutcome after = Run(spec, RunOptions{.ranks = ranks, .resume = before.result.checkpoint});
  REQUIRE(after.records.size() == 13);
  REQUIRE(after.records.front().step == 8);
  REQUIRE(after.records.back().tokens == whole.records.back().tokens);
  RequireSame(Tail(whole, 8), after);
}

TEST_CASE("every stage resumes bit for bit") {
  for (int stage = 0; stage <= 3; ++stage) RequireResumes(TinySpec(), 2, stage, stage);
}

TEST_CASE("a checkpoint of one stage resumes under another") {
  RequireResumes(TinySpec(), 3, 3, 0);
  RequireResumes(TinySpec(), 3, 0, 3);
}

TEST_CASE("bf16, fp16's loss scale, dropout and a schedule resume bit for bit") {
  JobSpec bf16 = TinySpec();
  bf16.precision = Precision::bf16;
  bf16.model.dropout = 0.1;
  bf16.scheduler = {SchedulerKind::warmup_cosine_lr,
                    {{"total_num_steps", 20.0},
                     {"warmup_min_ratio", 0.0},
                     {"warmup_num_steps", 5.0},
                     {"warmup_type", 0.0},
                     {"cos_min_ratio", 1e-4}}};
  RequireResumes(bf16, 2, 2, 2);
  JobSpec fp16 = TinySpec();
  fp16.precision = Precision::fp16;
  fp16.loss_scale.initial_power = 24;
  fp16.loss_scale.hysteresis = 2;
  fp16.loss_scale.window = 5;
  RequireResumes(fp16, 2, 3, 3);
}

TEST_CASE("a resume on another width goes on with the data and the state, within rounding") {
  JobSpec spec = TinySpec();
  const RunOutcome whole = Run(spec, RunOptions{.ranks = 2});
  JobSpec half = spec;
  half.training.steps = 10;
  const RunOutcome before = Run(half, RunOptions{.ranks = 2});
  spec.zero.stage = 3;
  const RunOutcome after = Run(spec, RunOptions{.ranks = 4, .resume = before.result.checkpoint});
  REQUIRE(after.records.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(after.losses()[i] == Approx(whole.losses()[10 + i]).epsilon(2e-5));
}

TEST_CASE("a checkpoint of another model or optimizer is refused by name") {
  JobSpec spec = TinySpec();
  spec.training.steps = 1;
  spec.optimizer.kind = OptimizerKind::lion;
  const RunOutcome written = Run(spec, RunOptions{});
  JobSpec other = spec;
  other.optimizer.kind = OptimizerKind::adamw;
  other.training.steps = 2;
  CHECK(Run(other, RunOptions{.resume = written.result.checkpoint}).error.find("no second moment") !=
        std::string::npos);
  other = spec;
  other.optimizer.kind = OptimizerKind::sgd;  // has its moments, of another meaning
  other.training.steps = 2;
  CHECK(Run(other, RunOptions{.resume = written.result.checkpoint}).error.find("is of Lion") != std::string::npos);
  other = spec;
  other.model.ffn = 96;
  const std::string error = Run(other, RunOptions{.resume = written.result.checkpoint}).error;
  CHECK(error.find("mlp") != std::string::npos);
  CHECK(error.find("96") != std::string::npos);
}

TEST_CASE("a resume with nothing left to train says so and changes nothing") {
  JobSpec spec = TinySpec();
  spec.training.steps = 2;
  const RunOutcome written = Run(spec, RunOptions{});
  const RunOutcome again = Run(spec, RunOptions{.resume = written.result.checkpoint});
  CHECK(again.records.empty());
  CHECK(again.result.steps == 2);
  CHECK(again.result.final_loss == written.result.final_loss);
  REQUIRE(again.events.size() == 1);
  CHECK(again.events[0].first == "resume");
  CHECK(again.events[0].second.find("nothing is left to train") != std::string::npos);
}

TEST_CASE("checkpoints come at the end, every N steps, never, and when asked to stop") {
  JobSpec spec = TinySpec();
  spec.training.steps = 5;
  auto steps_written = [&](int64_t every, int64_t stop_after) {
    spec.checkpoint.every = every;
    RunOptions options{.ranks = 2, .directory = NewDirectory(), .stop_after = stop_after};
    const RunOutcome run = Run(spec, options);
    REQUIRE(run.error == "");
    std::vector<std::string> names;
    const std::filesystem::path folder = options.directory + "/checkpoints";
    if (std::filesystem::exists(folder))
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with("step-")) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return std::pair{names, run};
  };
  using Names = std::vector<std::string>;
  CHECK(steps_written(0, -1).first == Names{"step-5"});
  CHECK(steps_written(2, -1).first == Names{"step-2", "step-4", "step-5"});
  CHECK(steps_written(-1, -1).first == Names{});

  // The last rank hears of it after step 2; all ranks agree in step 3 and end there.
  const auto [names, run] = steps_written(0, 2);
  CHECK(names == Names{"step-3"});
  CHECK(run.result.stopped);
  CHECK(run.result.steps == 3);
  CHECK(run.records.size() == 3);
  CHECK(run.records.back().checkpoint_stall_ms.has_value());
  spec.checkpoint.on_signal = false;
  CHECK(steps_written(0, 2).first == Names{});
}

}  // namespace
}  // namespace ds::layout_test
