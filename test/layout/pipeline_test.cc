// Promise: a pipeline does not change the result. For one data-parallel width and the same micro-batches, every
// schedule over any number of stages gives the losses, gradient norms, parameters and optimizer state of no pipeline,
// bit for bit: under every ZeRO stage, with tied token tables and without, wherever state is kept.
//
// Tests whose tag is [.equivalence] are the whole of the matrix; scripts/equivalence.sh runs them.
#include <filesystem>

#include "runtime/base/failpoint.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

struct Pipeline {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t stages = 2, virtual_stages = 1;
};

constexpr ScheduleKind kGPipe = ScheduleKind::gpipe, k1F1B = ScheduleKind::one_f_one_b,
                       kInterleaved = ScheduleKind::interleaved, kZbH1 = ScheduleKind::zb_h1, kZbV = ScheduleKind::zb_v;

const std::vector<Pipeline> kPipelines = {
    {kGPipe, 2},          {k1F1B, 2}, {kInterleaved, 2, 2}, {kZbH1, 2},  {kZbV, 2, 2},
    {kGPipe, 4},          {k1F1B, 4}, {kInterleaved, 4, 2}, {kZbH1, 4},  {kZbV, 4, 2},
    {kInterleaved, 2, 3}, {k1F1B, 3}, {kInterleaved, 3, 2}, {kZbV, 3, 2}};

JobSpec Cut(JobSpec spec, const Pipeline& pipeline) {
  spec.parallel.pipeline = pipeline.stages;
  spec.parallel.schedule = pipeline.schedule;
  spec.parallel.virtual_stages = pipeline.virtual_stages;
  return spec;
}

/// Four layers: ten segments.
JobSpec Deep(JobSpec spec, int stage, int64_t micro_batches) {
  spec.model.layers = 4;
  spec.training.steps = 3;
  spec.zero.stage = stage;
  spec.batch.accumulation = micro_batches;
  return spec;
}

void RequireNoDifference(const JobSpec& spec, int width, const std::vector<Pipeline>& pipelines,
                         RunOptions options = {}) {
  options.ranks = width;
  const RunOutcome none = Run(spec, options);
  REQUIRE(none.error == "");
  REQUIRE(none.records.size() == static_cast<size_t>(spec.training.steps));
  for (const Pipeline& pipeline : pipelines) {
    CAPTURE(spec.zero.stage, width, spec.batch.accumulation, static_cast<int>(pipeline.schedule), pipeline.stages,
            pipeline.virtual_stages, static_cast<int>(spec.training.recompute), spec.model.tied_head);
    options.ranks = width * static_cast<int>(pipeline.stages);
    const RunOutcome cut = Run(Cut(spec, pipeline), options);
    RequireSame(none, cut);
    CHECK(cut.result.measured.bytes_moved.at("Send") == cut.result.predicted.bytes_moved.at("Send"));
    for (size_t i = 0; i < none.records.size(); ++i) {
      CHECK(cut.records[i].tokens == none.records[i].tokens);
      CHECK(cut.records[i].validation_loss == none.records[i].validation_loss);
    }
  }
}

TEST_CASE("every schedule over 2, 3 and 4 stages is bit-equal to none, tied and untied") {
  JobSpec gpt2 = Deep(TinySpec(), 1, 3), llama = Deep(TinyLlama(), 3, 6);
  gpt2.model.dropout = 0.1;
  llama.training.recompute = RecomputeMode::full;
  RequireNoDifference(gpt2, 1, kPipelines);
  RequireNoDifference(llama, 1, kPipelines);
}

TEST_CASE("so it is under every ZeRO stage over two data-parallel ranks") {
  for (int stage = 0; stage <= 3; ++stage)
    RequireNoDifference(Deep(TinySpec(), stage, 3), 2, {{k1F1B, 2}, {kZbV, 2, 2}});
}

TEST_CASE("the whole matrix: schedules, ZeRO stages, recompute, tied and untied, over one rank and two",
          "[.equivalence]") {
  for (const JobSpec& like : {TinySpec(), TinyLlama()}) {
    for (int stage = 0; stage <= 3; ++stage)
      for (int width : {1, 2})
        for (RecomputeMode recompute : {RecomputeMode::none, RecomputeMode::attention, RecomputeMode::full}) {
          JobSpec spec = Deep(like, stage, width == 1 ? 4 : 3);
          spec.model.dropout = 0.1;
          spec.training.recompute = recompute;
          RequireNoDifference(spec, width, kPipelines);
        }
  }
}

TEST_CASE("a tied LLaMA and an untied GPT-2, in 16 bits and with exact sharding", "[.equivalence]") {
  JobSpec untied = TinySpec(), tied = TinyLlama();
  untied.model.tied_head = false;
  tied.model.tied_head = true;
  for (const JobSpec& like : {TinySpec(), untied, tied})
    for (int stage = 0; stage <= 3; ++stage)
      for (Precision precision : {Precision::fp32, Precision::bf16})
        for (bool exact : {false, true}) {
          JobSpec spec = Deep(like, stage, 3);
          spec.precision = precision;
          spec.training.exact_sharding = exact;
          RequireNoDifference(spec, 2, {{k1F1B, 2}, {kInterleaved, 2, 2}, {kZbV, 2, 2}, {kZbH1, 4}});
        }
}

TEST_CASE("one micro-batch, fewer than stages, and as many as fill no group") {
  for (int64_t micro_batches : {1, 2})
    RequireNoDifference(
        Deep(TinySpec(), 2, micro_batches), 1,
        {{kGPipe, 4}, {k1F1B, 4}, {kInterleaved, 4, 2}, {kZbH1, 4}, {kZbV, 4, 2}, {kInterleaved, 3, 3}});
}

TEST_CASE("a stage of each segment, and any cut") {
  RequireNoDifference(Deep(TinySpec(), 3, 3), 1, {{k1F1B, 10}, {kZbV, 5, 2}});
  for (const char* partition : {"uniform", "parameters", "type:attention", "type:MLP|head"}) {
    CAPTURE(partition);
    JobSpec spec = Deep(TinySpec(), 1, 3);
    spec.parallel.partition = partition;
    RequireNoDifference(spec, 1, {{k1F1B, 3}});
  }
}

TEST_CASE("bf16, fp16 with an overflow, documents, validation and another optimizer") {
  JobSpec bf16 = Deep(TinySpec(), 3, 3);
  bf16.precision = Precision::bf16;
  bf16.gradient_clipping = 0.5;
  bf16.data.validation = bf16.data.train;
  bf16.training.validate_every = 2;
  bf16.training.validate_batches = 2;
  RequireNoDifference(bf16, 2, {{k1F1B, 2}, {kZbV, 4, 2}});
  JobSpec fp16 = Deep(TinySpec(), 2, 3);
  fp16.precision = Precision::fp16;
  fp16.loss_scale.initial_power = 24;
  fp16.loss_scale.hysteresis = 1;
  fp16.training.steps = 8;
  RequireNoDifference(fp16, 1, {{kZbH1, 2}});
  JobSpec documents = OfDocuments(Deep(TinyLlama(), 1, 3));
  documents.optimizer.kind = OptimizerKind::sgd;
  documents.optimizer.momentum = 0.9;
  RequireNoDifference(documents, 1, {{kInterleaved, 3, 2}});
}

JobSpec With(JobSpec spec, OffloadTarget optimizer, OffloadTarget param, OffloadTarget activations) {
  spec.zero.offload_optimizer = optimizer;
  spec.zero.offload_param = param;
  spec.memory.offload_activations = activations;
  spec.memory.nvme_path = {NewDirectory()};
  std::filesystem::create_directories(spec.memory.nvme_path[0]);
  return spec;
}

TEST_CASE("state on the host and in files, stepped early and after Norm, of a tied model and an untied one") {
  constexpr OffloadTarget none = OffloadTarget::none, cpu = OffloadTarget::cpu, nvme = OffloadTarget::nvme;
  for (const double clipping : {0.0, 0.5}) {
    JobSpec spec = Deep(TinySpec(), 3, 3);
    spec.gradient_clipping = clipping;
    RequireNoDifference(With(spec, cpu, cpu, cpu), 1, {{k1F1B, 2}, {kZbV, 2, 2}});
    spec.zero.stage = 2;
    RequireNoDifference(With(spec, nvme, none, none), 2, {{kInterleaved, 2, 2}});
    spec.zero.stage = 1;
    spec.precision = Precision::bf16;
    RequireNoDifference(With(spec, cpu, none, nvme), 2, {{kZbH1, 2}});
  }
  RequireNoDifference(With(Deep(TinyLlama(), 3, 4), nvme, nvme, cpu), 1, {{k1F1B, 4}});
}

TEST_CASE("the executor of GPUs does the same, over a GPU that is not there") {
  RunOptions on_gpus;
  on_gpus.gpu = [](int) { return MakeFakeGpu(); };
  RequireNoDifference(Deep(TinySpec(), 0, 3), 2, {{k1F1B, 2}, {kZbV, 2, 2}}, on_gpus);
  RequireNoDifference(Deep(TinySpec(), 3, 3), 2, {{kInterleaved, 2, 2}}, on_gpus);
  RequireNoDifference(Deep(TinyLlama(), 1, 4), 1, {{kGPipe, 4}, {kZbH1, 4}, {kZbV, 4, 2}}, on_gpus);
  JobSpec offloaded = With(Deep(TinySpec(), 2, 3), OffloadTarget::cpu, OffloadTarget::none, OffloadTarget::cpu);
  RequireNoDifference(offloaded, 1, {{k1F1B, 2}}, on_gpus);
}

TEST_CASE("what one pipeline wrote another goes on from, as if nothing had changed") {
  JobSpec spec = Deep(TinySpec(), 3, 3);
  spec.training.steps = 6;
  spec.checkpoint.every = 3;
  spec.zero.reduce_bucket_size = 4000;
  const RunOutcome whole = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(whole.error == "");
  const Pipeline none{k1F1B, 1};
  for (const auto& [wrote, reads] : {std::pair{none, Pipeline{kZbV, 2, 2}},
                                     {Pipeline{kInterleaved, 2, 2}, none},
                                     {Pipeline{k1F1B, 4}, Pipeline{kZbH1, 3}},
                                     {Pipeline{kZbV, 4, 2}, Pipeline{k1F1B, 2}}}) {
    CAPTURE(wrote.stages, reads.stages);
    JobSpec first = Cut(spec, wrote), then = Cut(spec, reads);
    first.training.steps = 3;
    then.zero.stage = 1;
    const std::string directory = NewDirectory();
    REQUIRE(Run(first, RunOptions{.ranks = 2 * static_cast<int>(wrote.stages), .directory = directory}).error == "");
    const RunOutcome resumed =
        Run(then, RunOptions{.ranks = 2 * static_cast<int>(reads.stages), .resume = directory + "/checkpoints/step-3"});
    REQUIRE(resumed.error == "");
    REQUIRE(resumed.records.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(resumed.records[i].loss == Approx(whole.records[i + 3].loss).epsilon(1e-5));  // ZeRO 1 reduces once a step
      CHECK(resumed.records[i].validation_loss == whole.records[i + 3].validation_loss);
    }
    JobSpec same = Cut(spec, reads);
    const RunOutcome equal =
        Run(same, RunOptions{.ranks = 2 * static_cast<int>(reads.stages), .resume = directory + "/checkpoints/step-3"});
    REQUIRE(equal.error == "");
    CHECK(equal.state == whole.state);
  }
}

TEST_CASE("a stop is agreed on by all stages, and a checkpoint in the background is whole") {
  JobSpec spec = Deep(TinySpec(), 2, 3);
  spec.training.steps = 9;
  spec.checkpoint.every = 2;
  const RunOutcome none = Run(spec, RunOptions{.ranks = 1, .stop_after = 5});
  const RunOutcome cut = Run(Cut(spec, {kZbV, 2, 2}), RunOptions{.ranks = 2, .stop_after = 5});
  REQUIRE(none.records.size() == 6);
  CHECK(none.result.stopped);
  CHECK(cut.result.stopped);
  RequireSame(none, cut);
}

struct Failpoints {
  explicit Failpoints(const std::string& entries) { SetFailpoints(entries); }
  ~Failpoints() { SetFailpoints(""); }
};

TEST_CASE("a number that is not finite is named where it began, not where it came to") {
  JobSpec spec = Deep(TinySpec(), 1, 3);
  struct Injection {
    int rank;
    const char *action, *named;
  };
  for (const Injection& injection :
       {Injection{1, "Forward layer0.attention mb1",
                  "step 2: the output of segment layer0.attention in the forward pass of micro-batch 1 is nan"},
        Injection{3, "Forward head mb0",
                  "step 2: the loss of segment head in the forward pass of micro-batch 0 is nan"},
        Injection{
            2, "BackwardInput layer3.mlp mb2",
            "step 2: the gradient of the input of segment layer3.mlp in the backward pass of micro-batch 2 is nan"}}) {
    for (const Pipeline& pipeline : {Pipeline{k1F1B, 2}, Pipeline{kGPipe, 2}}) {
      CAPTURE(injection.action);
      const Failpoints failpoints("step:2/" + std::string(injection.action) +
                                  ",rank=" + std::to_string(injection.rank) + ",nan");
      const RunOutcome run = Run(Cut(spec, pipeline), RunOptions{.ranks = 4});
      CAPTURE(run.error);
      CHECK(run.failed_ranks == 4);
      REQUIRE(run.numerical);
      CHECK(run.numerical->second == injection.rank);
      CHECK(run.error.find(injection.named) != std::string::npos);
      CHECK(run.error.find(" on rank " + std::to_string(injection.rank)) != std::string::npos);
    }
  }
}

TEST_CASE("ranks that would cut the model elsewhere are told before they train") {
  RunOptions options{.ranks = 2};
  options.adjust = [](int rank, JobSpec& spec) { spec.parallel.partition = rank == 0 ? "uniform" : "type:head"; };
  const RunOutcome run = Run(Cut(Deep(TinySpec(), 0, 3), {k1F1B, 2}), options);
  CAPTURE(run.error);
  CHECK(run.failed_ranks == 2);
  CHECK(run.error.find("the pipeline is cut at segment 5 by rank 0 and at segment ") != std::string::npos);
}

/// Sends something else than what was computed.
class Wrong : public Communicator {
 public:
  explicit Wrong(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(Tensor shard, Tensor whole) override { inner_->AllGather(shard, whole); }
  void ReduceScatter(Tensor whole, Tensor shard, Tensor workspace) override {
    inner_->ReduceScatter(whole, shard, workspace);
  }
  void AllToAll(Tensor send, Tensor receive) override { inner_->AllToAll(send, receive); }
  void Broadcast(Tensor tensor, int root) override { inner_->Broadcast(tensor, root); }
  void Send(Tensor tensor, int peer) override {
    std::vector<char> other(static_cast<size_t>(tensor.bytes()), 1);
    inner_->Send(Tensor(other.data(), tensor.dtype, tensor.shape), peer);
  }
  void Receive(Tensor tensor, int peer) override { inner_->Receive(tensor, peer); }
  void Barrier() override { inner_->Barrier(); }
  std::unique_ptr<Communicator> Split(int color, int key) override {
    return std::make_unique<Wrong>(inner_->Split(color, key));
  }
  void Abort(const std::string& reason) noexcept override { inner_->Abort(reason); }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST_CASE("activations that are not the sender's are noticed: these tests can fail") {
  const JobSpec spec = Cut(Deep(TinySpec(), 1, 3), {k1F1B, 2});
  RunOptions options{.ranks = 2};
  const RunOutcome right = Run(spec, options);
  options.decorate = [](const std::string& stream,
                        std::unique_ptr<Communicator> made) -> std::unique_ptr<Communicator> {
    if (stream != "next") return made;
    return std::make_unique<Wrong>(std::move(made));
  };
  const RunOutcome wrong = Run(spec, options);
  REQUIRE(wrong.error == "");
  CHECK(wrong.losses() != right.losses());
  CHECK(wrong.state != right.state);
}

}  // namespace
}  // namespace ds::layout_test
