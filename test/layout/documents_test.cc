// Promise: with data.reset_attention a job that packs documents into samples computes what one does whose samples are
// the documents: loss, gradients, validation loss. So it is under every ZeRO stage, to the same bits, on both
// executors.
#include <cmath>
#include <filesystem>

#include "runtime/data/token_file.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"
#include "test/layout/harness.h"

namespace ds::layout_test {
namespace {

/// 24 documents of 16 tokens with their ends, and what the last target needs. A batch is all of them, so that it does
/// not depend on how samples are drawn; positions are relative. Optimizer states tell the gradient.
JobSpec EqualDocuments(int64_t documents_a_sample) {
  static const std::string path = [] {
    std::vector<int> lengths(24, 15);
    lengths.push_back(1);
    return WriteDocuments(lengths);
  }();
  JobSpec spec = TinyLlama();
  spec.data.train = spec.data.validation = {path};
  spec.data.sequence_length = 16 * documents_a_sample;
  spec.model.max_positions = 16 * 24;
  spec.batch.train_batch_size = 24 / documents_a_sample;
  spec.training.steps = 1;
  spec.training.validate_every = 1;
  spec.gradient_clipping = 0;
  return spec;
}

JobSpec Packed(bool reset = true) {
  JobSpec spec = EqualDocuments(4);
  spec.data.reset_attention = reset;
  return spec;
}

/// Largest difference between the gradients of the first step, over each parameter's largest; AdamW's first moments are
/// a tenth of them.
double GradientDifference(const RunOutcome& a, const RunOutcome& b) {
  double largest = 0;
  REQUIRE(a.state.size() == b.state.size());
  for (const auto& [key, values] : a.state) {
    if (key.second != "moment1") continue;
    const std::vector<float>& others = b.state.at(key);
    REQUIRE(values.size() == others.size());
    double difference = 0, size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = std::abs(static_cast<double>(values[i]) - others[i]);
      if (!(d <= difference)) difference = d;  // NaN counts
      size = std::max(size, std::abs(static_cast<double>(others[i])));
    }
    REQUIRE(size > 0);
    if (!(difference / size <= largest)) largest = difference / size;
  }
  return largest;
}

void RequireAlike(const RunOutcome& packed, const RunOutcome& alone) {
  REQUIRE(packed.error == "");
  REQUIRE(alone.error == "");
  REQUIRE(packed.records.size() == 1);
  CHECK(packed.losses()[0] == Approx(alone.losses()[0]).epsilon(1e-6));
  CHECK(packed.norms()[0] == Approx(alone.norms()[0]).epsilon(1e-5));
  REQUIRE(packed.records[0].validation_loss);
  CHECK(*packed.records[0].validation_loss == Approx(*alone.records[0].validation_loss).epsilon(1e-6));
  CHECK(GradientDifference(packed, alone) < 1e-5);
}

TEST_CASE("packed documents are trained on as if each were a sample of its own, under every stage") {
  const RunOutcome alone = Run(EqualDocuments(1), RunOptions{.ranks = 1});
  const RunOutcome one = Run(Packed(), RunOptions{.ranks = 1});
  RequireAlike(one, alone);
  for (int ranks : {1, 2, 3}) {
    JobSpec spec = Packed();
    const RunOutcome first = Run(spec, RunOptions{.ranks = ranks});
    RequireAlike(first, alone);
    for (int stage = 1; stage <= 3; ++stage) {
      CAPTURE(ranks, stage);
      spec.zero.stage = stage;
      RequireSame(first, Run(spec, RunOptions{.ranks = ranks}));
    }
  }
  // Without the key documents see each other, which is something else: in validation too.
  const RunOutcome across = Run(Packed(false), RunOptions{.ranks = 1});
  REQUIRE(across.error == "");
  CHECK(std::abs(across.losses()[0] - alone.losses()[0]) > 1e-5 * alone.losses()[0]);
  CHECK(std::abs(*across.records[0].validation_loss - *alone.records[0].validation_loss) > 1e-5);
  CHECK(GradientDifference(across, alone) > 1e-2);
}

TEST_CASE("attention within documents: recomputation, threads and stages change no bit") {
  for (const JobSpec& like : {TinySpec(), TinyLlama()}) {
    JobSpec spec = OfDocuments(like);
    spec.model.dropout = 0.1;
    spec.training.validate_every = 5;
    const RunOutcome first = Run(spec, RunOptions{.ranks = 2});
    REQUIRE(first.error == "");
    for (RecomputeMode mode : {RecomputeMode::activation, RecomputeMode::attention, RecomputeMode::full})
      for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage, static_cast<int>(mode));
        spec.training.recompute = mode;
        spec.zero.stage = stage;
        const RunOutcome other = Run(spec, RunOptions{.ranks = 2, .threads = stage == 1 ? 3 : 1});
        RequireSame(first, other);
        for (size_t i = 0; i < first.records.size(); ++i)
          REQUIRE(first.records[i].validation_loss == other.records[i].validation_loss);
      }
    spec.data.reset_attention = false;
    CHECK(Run(spec, RunOptions{.ranks = 2}).losses() != first.losses());
  }
}

TEST_CASE("attention within documents: the GPU executor gives the host executor's bits") {
  for (int stage = 0; stage <= 3; ++stage) {
    CAPTURE(stage);
    JobSpec spec = OfDocuments(stage % 2 ? TinyLlama() : TinySpec());
    spec.zero.stage = stage;
    spec.batch.accumulation = 2;
    spec.training.validate_every = 5;
    if (stage > 1) spec.training.recompute = RecomputeMode::attention;
    RunOptions on_gpus{.ranks = 2};
    on_gpus.gpu = [](int) { return MakeFakeGpu(); };
    const RunOutcome host = Run(spec, RunOptions{.ranks = 2}), gpu = Run(spec, on_gpus);
    RequireSame(host, gpu);
    for (size_t i = 0; i < host.records.size(); ++i)
      REQUIRE(host.records[i].validation_loss == gpu.records[i].validation_loss);
  }
}

TEST_CASE("attention within documents: a run resumes bit for bit, and may begin to keep them apart") {
  JobSpec spec = OfDocuments(TinySpec());
  const RunOutcome whole = Run(spec, RunOptions{.ranks = 2});
  spec.training.steps = 7;
  const RunOutcome before = Run(spec, RunOptions{.ranks = 2});
  REQUIRE(before.error == "");
  spec.training.steps = 20;
  RunOutcome after = Run(spec, RunOptions{.ranks = 2, .resume = before.result.checkpoint});
  REQUIRE(after.records.size() == 13);
  after.records.insert(after.records.begin(), whole.records.begin(), whole.records.begin() + 7);
  RequireSame(whole, after);
  spec.data.reset_attention = false;
  const RunOutcome across = Run(spec, RunOptions{.ranks = 2, .resume = before.result.checkpoint});
  REQUIRE(across.error == "");
  CHECK(across.losses().back() != whole.losses().back());
  const std::string says = "data.reset_attention was true and is now false: what a token sees differs from here on";
  CHECK(across.events.at(0).second.find(says) != std::string::npos);
  CHECK(after.events.at(0).second.find("data.reset_attention") == std::string::npos);
}

TEST_CASE("attention within documents is refused where nothing is known to end one") {
  const std::string folder = NewDirectory(), path = folder + "/ids.tok";
  std::filesystem::create_directories(folder);
  TokenFileWriter writer(path, kIdsTokenizer, 257);
  writer.BeginDocument();
  writer.Append(std::vector<int32_t>(400, 7));
  writer.Commit(false);
  JobSpec spec = TinySpec();
  spec.data.train = {path};
  spec.data.reset_attention = true;
  const std::string error = Run(spec, RunOptions{.ranks = 1}).error;
  CAPTURE(error);
  CHECK(error.starts_with("data.reset_attention: " + path + " has ids of a tokenizer that is not known"));
  CHECK(error.ends_with("or write data.reset_attention: false"));
}

}  // namespace
}  // namespace ds::layout_test
