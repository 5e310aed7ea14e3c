// Promise: sharding does not change the result. For one data-parallel width and the same micro-batches, ZeRO 0, 1, 2
// and 3 give the same losses, gradient norms, parameters and optimizer state, bit for bit, over 20 steps.
#include "kernels/reduce.h"
#include "test/catch.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

RunOutcome RunStage(JobSpec spec, int stage, int ranks) {
  spec.zero.stage = stage;
  return Run(spec, RunOptions{.ranks = ranks});
}

/// Every stage against stage 0; returns stage 0's outcome.
RunOutcome RequireStagesAgree(const JobSpec& spec, int ranks) {
  const RunOutcome first = RunStage(spec, 0, ranks);
  REQUIRE(first.error == "");
  REQUIRE(first.losses().size() == 20);
  for (int stage = 1; stage <= 3; ++stage) {
    CAPTURE(stage, ranks);
    RequireSame(first, RunStage(spec, stage, ranks));
  }
  return first;
}

/// What keeps less than none: GELU is not computed again on its own, though a job may ask for it.
const RecomputeMode kModes[] = {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full};

TEST_CASE("stages agree on 1, 2, 3 and 4 ranks, with and without recompute, in fp32 and bf16") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  JobSpec spec = TinySpec();
  spec.precision = precision;
  const RunOutcome kept = RequireStagesAgree(spec, ranks);
  CHECK(kept.losses().back() < kept.losses().front() - 0.5);  // it learns: equal losses are not all the same constant
  for (RecomputeMode mode : kModes) {
    CAPTURE(ranks, static_cast<int>(precision), static_cast<int>(mode));
    spec.training.recompute = mode;
    RequireSame(kept, RequireStagesAgree(spec, ranks));
  }
}

TEST_CASE("so they do with SwiGLU, whose output is kept or computed again") {
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  JobSpec spec = TinyLlama();
  spec.precision = precision;
  spec.model.dropout = 0.1;
  const RunOutcome kept = RequireStagesAgree(spec, 2);
  for (RecomputeMode mode : kModes) {
    CAPTURE(static_cast<int>(precision), static_cast<int>(mode));
    spec.training.recompute = mode;
    RequireSame(kept, RequireStagesAgree(spec, 2));
  }
}

TEST_CASE("stages agree in the shapes of GPT-2 and LLaMA, tied and untied, with dropout") {
  JobSpec gpt2 = TinySpec(), untied = TinySpec(), llama = TinyLlama(), tied_llama = TinyLlama();
  untied.model.tied_head = false;
  llama.model.kv_heads = 2;
  tied_llama.model.tied_head = true;
  gpt2.model.dropout = 0.1;
  gpt2.training.recompute = RecomputeMode::full;
  for (const JobSpec& spec : {gpt2, untied, llama, tied_llama}) RequireStagesAgree(spec, 2);
}

TEST_CASE("stages agree whatever is kept whole and however small the buckets") {
  JobSpec spec = TinySpec();
  for (int64_t threshold : {int64_t{0}, int64_t{3000}, int64_t{1'000'000}}) {
    CAPTURE(threshold);
    spec.zero.param_persistence_threshold = threshold;
    RequireStagesAgree(spec, 2);
  }
  spec = TinySpec();
  spec.zero.reduce_bucket_size = 1000;  // many buckets a unit
  RequireStagesAgree(spec, 3);
  spec.precision = Precision::bf16;
  RequireStagesAgree(spec, 3);
}

TEST_CASE("stage 3 agrees however much is prefetched and kept gathered") {
  JobSpec spec = TinySpec();
  const RunOutcome first = RunStage(spec, 0, 2);
  for (const auto& [prefetch, live, reuse] :
       {std::tuple{0, 1'000'000, 1'000'000}, std::tuple{1'000'000, 20'000, 1'000'000},
        std::tuple{1'000'000, 1'000'000, 0}, std::tuple{1'000'000, 1, 1}}) {
    CAPTURE(prefetch, live, reuse);
    spec.zero.prefetch_bucket_size = prefetch;
    spec.zero.max_live_parameters = live;
    spec.zero.max_reuse_distance = reuse;
    RequireSame(first, RunStage(spec, 3, 2));
  }
}

TEST_CASE("with accumulation stages 0 and 1 agree, 2 and 3 agree, and all four with exact_sharding") {
  const Precision precision = GENERATE(Precision::fp32, Precision::bf16);
  JobSpec spec = TinySpec();
  spec.precision = precision;
  spec.batch.accumulation = 3;
  const RunOutcome stages[] = {RunStage(spec, 0, 2), RunStage(spec, 1, 2), RunStage(spec, 2, 2), RunStage(spec, 3, 2)};
  RequireSame(stages[0], stages[1]);
  RequireSame(stages[2], stages[3]);
  spec.training.exact_sharding = true;
  const RunOutcome exact = RequireStagesAgree(spec, 2);
  RequireSame(exact, stages[2]);
  CHECK(exact.losses().back() == Approx(stages[0].losses().back()).epsilon(1e-3));
}

TEST_CASE("stages agree under fp16 with a loss scale that overflows and recovers") {
  JobSpec spec = TinySpec();
  spec.precision = Precision::fp16;
  spec.loss_scale.initial_power = 24;
  spec.loss_scale.hysteresis = 1;
  spec.loss_scale.window = 4;
  const RunOutcome run = RequireStagesAgree(spec, 2);
  CHECK(run.records[0].skipped);
  CHECK(run.events.at(0).first == "overflow");
  CHECK_FALSE(run.records.back().skipped);
  CHECK(run.losses().back() < run.losses().front());
  bool grew = false;
  for (size_t i = 1; i < run.records.size(); ++i)
    grew = grew || *run.records[i].loss_scale > *run.records[i - 1].loss_scale;
  CHECK(grew);
}

TEST_CASE("stages agree under every optimizer") {
  for (OptimizerKind kind :
       {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::lion, OptimizerKind::adagrad, OptimizerKind::rmsprop}) {
    CAPTURE(static_cast<int>(kind));
    JobSpec spec = TinySpec();
    spec.optimizer.kind = kind;
    spec.optimizer.momentum = 0.9;
    if (kind == OptimizerKind::lion) spec.optimizer.lr = 3e-4;
    RequireStagesAgree(spec, 2);
  }
}

TEST_CASE("sixteen ranks of ZeRO-3 in one process agree with ZeRO-0") {
  JobSpec spec = TinySpec();
  spec.batch.train_batch_size = 16;
  const RunOutcome whole = RunStage(spec, 0, 16);
  const RunOutcome sharded = RunStage(spec, 3, 16);
  REQUIRE(sharded.losses().size() == 20);
  RequireSame(whole, sharded);
}

TEST_CASE("other widths agree within rounding") {
  const RunOutcome one = RunStage(TinySpec(), 0, 1);
  for (int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const RunOutcome other = RunStage(TinySpec(), 3, ranks);
    REQUIRE(other.error == "");
    for (size_t i = 0; i < one.records.size(); ++i) {
      CAPTURE(i);
      CHECK(other.losses()[i] == Approx(one.losses()[i]).epsilon(2e-5));
      CHECK(other.norms()[i] == Approx(one.norms()[i]).epsilon(1e-3));
    }
  }
}

TEST_CASE("results do not depend on the thread count") {
  const JobSpec spec = TinySpec();
  const RunOutcome one = Run(spec, RunOptions{.ranks = 2, .threads = 1});
  for (int threads : {2, 3}) RequireSame(one, Run(spec, RunOptions{.ranks = 2, .threads = threads}));
}

/// Reduces in descending rank order: what a communicator must not do.
class Reversed : public Communicator {
 public:
  explicit Reversed(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void AllGather(Tensor shard, Tensor whole) override { inner_->AllGather(shard, whole); }
  void ReduceScatter(Tensor whole, Tensor shard, Tensor) override {
    std::vector<float> received(static_cast<size_t>(whole.numel()));
    const Tensor pieces = Tensor::Of(received.data(), Shape{whole.numel()});
    inner_->AllToAll(whole.Flat(), pieces);
    std::vector<Tensor> parts;
    for (int r = size(); r-- > 0;) parts.push_back(pieces.Flat(r * shard.numel(), shard.numel()));
    SumInOrder(KernelContext(), parts, shard.Flat());
  }
  void AllToAll(Tensor send, Tensor receive) override { inner_->AllToAll(send, receive); }
  void Broadcast(Tensor tensor, int root) override { inner_->Broadcast(tensor, root); }
  void Send(Tensor tensor, int peer) override { inner_->Send(tensor, peer); }
  void Receive(Tensor tensor, int peer) override { inner_->Receive(tensor, peer); }
  void Barrier() override { inner_->Barrier(); }
  std::unique_ptr<Communicator> Split(int color, int key) override { return inner_->Split(color, key); }
  void Abort(const std::string& reason) noexcept override { inner_->Abort(reason); }

 private:
  std::unique_ptr<Communicator> inner_;
};

TEST_CASE("a reduction in another order is noticed: these tests can fail") {
  JobSpec spec = TinySpec();
  const RunOutcome ordered = RunStage(spec, 0, 3);
  spec.zero.stage = 2;
  RunOptions options{.ranks = 3};
  RequireSame(ordered, Run(spec, options));
  options.decorate = [](const std::string& stream,
                        std::unique_ptr<Communicator> made) -> std::unique_ptr<Communicator> {
    if (stream != "reduce") return made;
    return std::make_unique<Reversed>(std::move(made));
  };
  const RunOutcome reversed = Run(spec, options);
  REQUIRE(reversed.error == "");
  CHECK(reversed.losses() != ordered.losses());
  CHECK(reversed.norms() != ordered.norms());
  CHECK(reversed.state != ordered.state);
  CHECK(reversed.losses().back() == Approx(ordered.losses().back()).epsilon(1e-4));
}

}  // namespace
}  // namespace ds::layout_test
