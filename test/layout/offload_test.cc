// Promise: where state is kept does not change the result. Optimizer state, gradients, parameters and activations on
// the host or in files give the same losses, gradient norms, parameters and optimizer state as all of them on the
// device, bit for bit.
#include <filesystem>

#include "test/catch.h"
#include "test/layout/offload.h"

namespace ds::layout_test {
namespace {

void RequireNoDifference(const JobSpec& spec, int ranks, const std::vector<Offload>& offloads) {
  const RunOutcome first = Run(spec, RunOptions{.ranks = ranks});
  REQUIRE(first.error == "");
  REQUIRE(first.losses().size() == static_cast<size_t>(spec.training.steps));
  CHECK(first.losses().back() < first.losses().front());
  for (const Offload& offload : offloads) {
    const JobSpec moved = With(spec, offload);
    CAPTURE(spec.zero.stage, ranks, static_cast<int>(offload.optimizer), static_cast<int>(offload.param),
            static_cast<int>(offload.activations), offload.ratio);
    const RunOutcome outcome = Run(moved, RunOptions{.ranks = ranks});
    RequireSame(first, outcome);
    CHECK(outcome.result.measured.bytes_moved.at("Fetch") == outcome.result.predicted.bytes_moved.at("Fetch"));
    CHECK(outcome.result.measured.bytes_moved.at("Store") == outcome.result.predicted.bytes_moved.at("Store"));
    for (const std::string& folder : moved.memory.nvme_path) CHECK(std::filesystem::is_empty(folder));
  }
}

TEST_CASE("optimizer and activations on the host and in files, under ZeRO 1 to 3, with and without recompute") {
  const int stage = GENERATE(1, 2, 3);
  const RecomputeMode recompute = GENERATE(RecomputeMode::none, RecomputeMode::full);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  JobSpec spec = TinySpec();
  spec.training.steps = 5;
  spec.zero.stage = stage;
  spec.training.recompute = recompute;
  spec.precision = precision;
  spec.gradient_clipping = 1;
  RequireNoDifference(spec, 2,
                      {{kCpu, kNone, kNone},
                       {kNvme, kNone, kNone},
                       {kNone, kNone, kCpu},
                       {kNone, kNone, kNvme},
                       {kCpu, kNone, kNvme},
                       {kNvme, kNone, kCpu}});
}

TEST_CASE("parameters on the host and in files, beside optimizer state on each tier") {
  const RecomputeMode recompute = GENERATE(RecomputeMode::none, RecomputeMode::full);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  JobSpec spec = TinySpec();
  spec.training.steps = 5;
  spec.zero.stage = 3;
  spec.training.recompute = recompute;
  spec.precision = precision;
  spec.zero.max_live_parameters = 20'000;
  RequireNoDifference(spec, 2,
                      {{kNone, kCpu, kNone},
                       {kNone, kNvme, kNone},
                       {kCpu, kCpu, kNone},
                       {kCpu, kNvme, kCpu},
                       {kNvme, kCpu, kNvme},
                       {kNvme, kNvme, kNvme}});
}

TEST_CASE("with small buckets, accumulation, one rank and three, tied and untied heads, and a part of the optimizer") {
  const int ranks = GENERATE(1, 3);
  for (JobSpec spec : {TinySpec(), TinyLlama()}) {
    spec.training.steps = 4;
    spec.precision = Precision::bf16;
    spec.zero.reduce_bucket_size = 1000;
    spec.zero.param_persistence_threshold = 0;
    for (int stage = 1; stage <= 3; ++stage) {
      spec.zero.stage = stage;
      for (int64_t accumulation : {1, 2}) {
        spec.batch.accumulation = accumulation;
        for (double clip : {0.0, 0.5}) {
          spec.gradient_clipping = clip;
          const OffloadTarget param = stage == 3 ? kCpu : kNone;
          RequireNoDifference(spec, ranks,
                              {{kCpu, kNone, kNone, 0.5}, {kCpu, param, kCpu}, {kNvme, param, kNone, 0.7}});
        }
      }
    }
  }
}

TEST_CASE("steps that overflow are skipped, and the working copy stays") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::fp16;
  spec.loss_scale.initial_power = 24;
  spec.loss_scale.hysteresis = 1;
  spec.zero.stage = 3;
  for (int stage : {2, 3}) {
    spec.zero.stage = stage;
    const OffloadTarget param = stage == 3 ? kNvme : kNone;
    RequireNoDifference(spec, 2, {{kCpu, kNone, kNone}, {kCpu, param, kNone}, {kNvme, param, kNone}});
  }
}

TEST_CASE("GPU ranks give the same bits, on a GPU that is none") {
  const int ranks = GENERATE(1, 2);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16, Precision::fp16);
  JobSpec spec = TinySpec();
  spec.training.steps = 5;
  spec.precision = precision;
  spec.loss_scale.initial_power = 24;
  spec.loss_scale.hysteresis = 1;
  spec.zero.reduce_bucket_size = 3000;
  for (int stage = 1; stage <= 3; ++stage) {
    for (int64_t accumulation : {1, 2}) {
      for (double clip : {0.0, 0.5}) {
        spec.zero.stage = stage;
        spec.batch.accumulation = accumulation;
        spec.gradient_clipping = clip;
        spec.training.recompute = stage == 2 ? RecomputeMode::full : RecomputeMode::none;
        const RunOutcome first = Run(spec, RunOptions{.ranks = ranks});
        REQUIRE(first.error == "");
        const bool shards = stage == 3;
        for (const Offload& offload :
             {Offload{kCpu, kNone, kNone}, Offload{kCpu, shards ? kCpu : kNone, kCpu, 0.6},
              Offload{kNvme, shards ? kNvme : kNone, kNvme}, Offload{kNone, shards ? kCpu : kNone, kCpu}}) {
          CAPTURE(ranks, stage, accumulation, clip, static_cast<int>(precision), static_cast<int>(offload.optimizer),
                  static_cast<int>(offload.param), static_cast<int>(offload.activations));
          const RunOutcome gpu = Run(With(spec, offload), OnFakeGpus(ranks));
          REQUIRE(gpu.error == "");
          RequireSame(first, gpu);
          CHECK(gpu.result.measured.bytes_moved.at("Fetch") == gpu.result.predicted.bytes_moved.at("Fetch"));
        }
      }
    }
  }
}

TEST_CASE("every optimizer steps on the host as it does on the device") {
  for (OptimizerKind kind :
       {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::adagrad, OptimizerKind::rmsprop}) {
    JobSpec spec = TinySpec();
    spec.training.steps = 5;
    spec.precision = Precision::bf16;
    spec.optimizer.kind = kind;
    spec.optimizer.momentum = kind == OptimizerKind::sgd || kind == OptimizerKind::rmsprop ? 0.9 : 0;
    spec.zero.stage = 2;
    CAPTURE(static_cast<int>(kind));
    RequireNoDifference(spec, 2, {{kCpu, kNone, kNone}, {kNvme, kNone, kNone}});
  }
}

TEST_CASE("a checkpoint of one placement resumes on any other, bit for bit") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::bf16;
  spec.zero.stage = 3;
  spec.checkpoint.every = 5;
  const RunOutcome whole = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(whole.error == "");
  const std::vector<Offload> offloads = {{kCpu, kCpu, kCpu}, {kNvme, kNvme, kNvme}, {kNone, kNone, kNone}};
  for (const Offload& before : offloads) {
    for (const Offload& after : offloads) {
      const std::string directory = NewDirectory();
      RunOptions first{.ranks = 2};
      first.directory = directory;
      first.stop_after = 10;
      const RunOutcome stopped = Run(With(spec, before), first);
      REQUIRE(stopped.error == "");
      REQUIRE(stopped.result.stopped);
      RunOptions second{.ranks = 2};
      second.resume = stopped.result.checkpoint;
      const RunOutcome resumed = Run(With(spec, after), second);
      REQUIRE(resumed.error == "");
      CHECK(resumed.state == whole.state);
      CHECK(resumed.losses().back() == whole.losses().back());
    }
  }
}

TEST_CASE("validation reads parameters from every tier") {
  JobSpec spec = TinySpec();
  spec.training.steps = 4;
  spec.data.validation = spec.data.train;
  spec.training.validate_every = 2;
  spec.zero.stage = 3;
  const RunOutcome first = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(first.error == "");
  for (OffloadTarget param : {kCpu, kNvme}) {
    const RunOutcome outcome = Run(With(spec, {kCpu, param, kNone}), RunOptions{.ranks = 2});
    REQUIRE(outcome.error == "");
    REQUIRE(outcome.records[1].validation_loss);
    CHECK(outcome.records[1].validation_loss == first.records[1].validation_loss);
    CHECK(outcome.result.validation_loss == first.result.validation_loss);
  }
}

}  // namespace
}  // namespace ds::layout_test
