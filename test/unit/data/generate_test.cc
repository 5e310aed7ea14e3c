#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/random.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/generate/language_model.h"
#include "runtime/generate/sampling.h"
#include "runtime/model/segment_spec.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;

const std::vector<float> kLogits{1.0f, 3.0f, 2.0f, 3.0f, -50.0f};

/// How often each of the tokens of `logits` is drawn at positions 0..n.
std::vector<int> Draws(const std::vector<float>& logits, const SamplingOptions& options, int n) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < n; ++i) ++counts[static_cast<size_t>(SampleToken(logits, options, i))];
  return counts;
}

/// A checkpoint of a random model of that shape.
std::filesystem::path WriteModel(const TempFolder& folder, const std::string& name, const std::string& shape,
                                 int64_t sequence_length, uint64_t seed) {
  const std::string yaml = "job: {name: tiny}\nmodel: " + shape + "\ndata: {train: " + (folder / "x.txt").string() +
                           ", sequence_length: " + std::to_string(sequence_length) +
                           "}\ntraining: {steps: 1}\ndeepspeed: {train_batch_size: 4}\n";
  const JobSpec job = ParseJobSpec(yaml, "tiny.yaml", folder.path().string(), {}, 1);
  std::vector<std::vector<float>> memory;
  std::vector<StateSlice> slices;
  for (const SegmentSpec& segment : BuildSegments(job.model, DType::f32, {1, sequence_length}))
    for (const ParamSpec& param : segment.params) {
      const Shape shape = param.real_rows ? Shape{param.real_rows, param.shape[1]} : param.shape;
      const int64_t numel = shape.numel();
      memory.emplace_back(static_cast<size_t>(numel));
      FillNormal({}, {seed, memory.size()}, 0, param.init == InitKind::ones ? 1.0f : 0.0f, 0.3f,
                 Tensor::Of(memory.back().data(), {numel}));
      slices.push_back({param.name, StateKind::master, shape, 0, Tensor::Of(memory.back().data(), {numel})});
    }
  TrainingState state;
  state.step = 3;
  state.job_yaml = ToYaml(job);
  auto control = SingleRankFactory()("control");
  return WriteCheckpoint(folder / name, state, slices, 0, *control);
}

std::vector<int32_t> Text(int64_t length) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>((i * 37 + 11) % 257));
  return tokens;
}

std::vector<float> Logits(LanguageModel& model, std::vector<int32_t> tokens) {
  std::span<const float> logits = model.Logits(tokens);
  return {logits.begin(), logits.end()};
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

}  // namespace

TEST_CASE("greedy takes the likeliest token, the first of equals") {
  SamplingOptions greedy;
  greedy.temperature = 0;
  CHECK(Draws(kLogits, greedy, 10) == std::vector<int>{0, 10, 0, 0, 0});
  SamplingOptions top1;
  top1.top_k = 1;
  CHECK(Draws(kLogits, top1, 10) == std::vector<int>{0, 10, 0, 0, 0});
}

TEST_CASE("tokens are drawn with the probabilities of the softmax at the temperature") {
  SamplingOptions options;
  const int n = 20000;
  for (double temperature : {0.5, 1.0, 2.0}) {
    options.temperature = temperature;
    const std::vector<int> counts = Draws(kLogits, options, n);
    double sum = 0;
    for (float logit : kLogits) sum += std::exp(logit / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(kLogits[i] / temperature) / sum;
      CAPTURE(temperature, i, p);
      CHECK(std::abs(counts[i] - n * p) < 5 * std::sqrt(n * p * (1 - p)) + 1);
    }
  }
}

TEST_CASE("top-k and top-p leave the likeliest tokens alone") {
  SamplingOptions options;
  options.temperature = 1;
  options.top_k = 2;
  std::vector<int> counts = Draws(kLogits, options, 1000);
  CHECK(counts[1] + counts[3] == 1000);
  CHECK(std::abs(counts[1] - 500) < 80);
  options.top_k = 0;
  options.top_p = 0.5;  // tokens 1 and 3 have 0.40 each
  counts = Draws(kLogits, options, 1000);
  CHECK(counts[1] + counts[3] == 1000);
  options.top_p = 0.3;
  CHECK(Draws(kLogits, options, 100)[1] == 100);
}

TEST_CASE("draws depend on seed and position alone") {
  const std::vector<float> flat(100, 0.0f);
  SamplingOptions a, b;
  b.seed = 1;
  auto sequence = [&](const SamplingOptions& options) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(SampleToken(flat, options, i));
    return tokens;
  };
  CHECK(sequence(a) == sequence(a));
  CHECK(sequence(a) != sequence(b));
}

TEST_CASE("options out of range and broken logits are errors") {
  auto wrong = [](auto change) {
    SamplingOptions options;
    change(options);
    CHECK_THROWS_AS(Check(options), UsageError);
  };
  wrong([](SamplingOptions& o) { o.temperature = -1; });
  wrong([](SamplingOptions& o) { o.temperature = std::nan(""); });
  wrong([](SamplingOptions& o) { o.top_k = -1; });
  wrong([](SamplingOptions& o) { o.top_p = 0; });
  wrong([](SamplingOptions& o) { o.top_p = 1.5; });
  const std::vector<float> broken{0, std::numeric_limits<float>::quiet_NaN()};
  CHECK_THROWS_AS(SampleToken(broken, {}, 0), RuntimeError);
}

TEST_CASE("a model's logits depend on the last tokens of its context, and on nothing behind the text") {
  const std::string shape = GENERATE(
      as<std::string>(),
      "{layers: 2, hidden: 32, heads: 4, vocabulary: 257, max_positions: 64, position: learned, norm: layer_norm, "
      "activation: gelu, tied_head: true}",
      "{layers: 2, hidden: 32, heads: 4, kv_heads: 2, vocabulary: 257, max_positions: 64, position: rope, norm: "
      "rms_norm, "
      "activation: swiglu, bias: false, tied_head: false}");
  CAPTURE(shape);
  TempFolder folder;
  folder.Write("x.txt", std::string(1000, 'x'));
  LanguageModel exact(WriteModel(folder, "exact", shape, 20, 5), 1);  // a text of 20 fills its window
  LanguageModel wide(WriteModel(folder, "wide", shape, 48, 5), 2);  // one of 32 is computed, 12 of them behind the text
  LanguageModel other(WriteModel(folder, "other", shape, 48, 6), 1);
  CHECK(wide.context() == 48);
  CHECK(wide.step() == 3);
  CHECK(wide.vocabulary() == 257);

  const std::vector<float> expected = Logits(exact, Text(20));
  REQUIRE(expected.size() == 257);
  CHECK(Distance(Logits(wide, Text(20)), expected) < 1e-4);
  CHECK(Distance(Logits(other, Text(20)), expected) > 0.1);
  Logits(wide, Text(48));  // dirties the memory of every window
  Logits(wide, Text(31));
  CHECK(Distance(Logits(wide, Text(20)), expected) < 1e-4);

  std::vector<int32_t> changed = Text(20);
  changed[0] = 200;
  CHECK(Distance(Logits(exact, changed), expected) > 1e-3);
  std::vector<int32_t> longer = Text(20);
  longer.insert(longer.begin(), 30, 99);
  CHECK(Logits(exact, longer) == expected);  // only the last 20 count
  CHECK_THROWS_AS(exact.Logits({}), RuntimeError);
}

TEST_CASE("a checkpoint of another model is refused with the parameter's name") {
  TempFolder folder;
  folder.Write("x.txt", std::string(1000, 'x'));
  const std::string shape = "{layers: 1, hidden: 32, heads: 4, vocabulary: 257, max_positions: 64}";
  const auto path = WriteModel(folder, "a", shape, 16, 5);
  Manifest manifest = ReadManifest(path);
  std::string& yaml = manifest.training.job_yaml;
  const size_t at = yaml.find("layers: 1");
  REQUIRE(at != std::string::npos);
  yaml[at + 8] = '2';
  test::Overwrite(path / "manifest.json", ToJson(manifest));
  CHECK(Contains(MessageOf<RuntimeError>([&] { LanguageModel(path, 1); }), "holds no parameter layers.1."));
}

}  // namespace ds
