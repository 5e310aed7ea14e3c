#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/random.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/generate/language_model.h"
#include "runtime/generate/sampling.h"
#include "runtime/model/segment_spec.h"
#include "runtime/segments/segment.h"
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

/// Training's forward pass over a whole text, on the parameters of a checkpoint: the slow twin of generation.
std::vector<float> TrainingLogits(const std::filesystem::path& checkpoint, const std::vector<int32_t>& tokens) {
  const CheckpointReader reader(checkpoint);
  const JobSpec job = ParseJobSpec(reader.state().job_yaml, "job", "/", {}, 1);
  const int64_t length = static_cast<int64_t>(tokens.size());
  SegmentOptions options{};
  options.model = job.model, options.compute = DType::f32, options.shape = {1, length};
  std::vector<std::vector<float>> memory;
  auto make = [&memory](Shape shape) {
    memory.emplace_back(static_cast<size_t>(shape.numel()));
    return Tensor::Of(memory.back().data(), shape);
  };
  StepContext step;
  step.training = false;
  Tensor x, token_table;
  std::vector<float> logits(static_cast<size_t>(job.model.vocabulary));
  for (const SegmentSpec& spec : BuildSegments(job.model, DType::f32, options.shape)) {
    SegmentIo io;
    for (const ParamSpec& param : spec.params) {
      io.params.push_back(make(param.shape));
      const int64_t real = param.real_rows ? param.real_rows * param.shape[1] : param.shape.numel();
      reader.Read(param.name, StateKind::master, 0, io.params.back().Flat(0, real));
    }
    if (spec.kind == SegmentKind::embedding) {
      token_table = io.params[0];
      io.tokens = Tensor::Of(tokens.data(), {1, length});
    }
    if (spec.kind == SegmentKind::head) {
      if (spec.tied) io.params.push_back(token_table);
      HeadLogits(options, spec, step, io.params, x.View({length, job.model.hidden}), length - 1, 1,
                 Tensor::Of(logits.data(), {1, job.model.vocabulary}));
      break;
    }
    io.x = x;
    io.y = make({1, length, job.model.hidden});
    for (const TensorSpec& saved : spec.saved) io.saved.push_back(make(saved.shape));
    Tensor scratch = make({spec.forward_scratch / 4 + 1});
    io.scratch = Tensor(scratch.data, DType::u8, Shape{spec.forward_scratch});
    MakeSegment(spec, options)->Forward(step, io);
    x = io.y;
  }
  return logits;
}

const std::string kGpt2 =
    "{layers: 2, hidden: 32, heads: 4, vocabulary: 257, max_positions: 64, position: learned, norm: layer_norm, "
    "activation: gelu, tied_head: true}";
const std::string kLlama =
    "{layers: 2, hidden: 32, heads: 4, kv_heads: 2, vocabulary: 257, max_positions: 64, position: rope, norm: "
    "rms_norm, activation: swiglu, bias: false, tied_head: false}";
const std::string kQwen =
    "{layers: 3, hidden: 36, heads: 6, kv_heads: 2, vocabulary: 300, max_positions: 64, position: rope, norm: "
    "rms_norm, activation: swiglu, bias: false, qkv_bias: true, tied_head: true}";

std::vector<int32_t> Window(const std::vector<int32_t>& tokens, int64_t context) {
  return {tokens.begin() + WindowBegin(static_cast<int64_t>(tokens.size()), context), tokens.end()};
}

size_t Likeliest(const std::vector<float>& logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
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

TEST_CASE("any set of filters keeps the probabilities of what it leaves, and its ties by token") {
  struct Case {
    double temperature;
    int64_t top_k;
    double top_p;
    std::vector<size_t> left;  // tokens that may be drawn
  };
  // By probability at temperature 1: tokens 1 and 3 (0.40 each), 2 (0.15), 0 (0.05), 4.
  const Case cases[] = {{1, 3, 1, {1, 3, 2}},        {1, 1, 1, {1}},         {1, 5, 1, {1, 3, 2, 0, 4}},
                        {1, 50, 1, {1, 3, 2, 0, 4}}, {1, 0, 0.9, {1, 3, 2}}, {1, 4, 0.85, {1, 3, 2}},
                        {1, 2, 0.99, {1, 3}},        {1, 0, 1e-9, {1}},      {0.5, 0, 0.95, {1, 3, 2}},
                        {3, 3, 0.5, {1, 3}},         {1, 3, 0.41, {1}},      {1, 3, 0.43, {1, 3}}};
  const int n = 8000;
  for (const Case& c : cases) {
    CAPTURE(c.temperature, c.top_k, c.top_p);
    SamplingOptions options;
    options.temperature = c.temperature, options.top_k = c.top_k, options.top_p = c.top_p, options.seed = 7;
    const std::vector<int> counts = Draws(kLogits, options, n);
    double sum = 0;
    int drawn = 0;
    for (size_t token : c.left) sum += std::exp(kLogits[token] / c.temperature);
    for (size_t token : c.left) {
      const double p = std::exp(kLogits[token] / c.temperature) / sum;
      CHECK(std::abs(counts[token] - n * p) < 5 * std::sqrt(n * p * (1 - p)) + 1);
      drawn += counts[token];
    }
    CHECK(drawn == n);
  }
}

TEST_CASE("filters that leave all tokens change no draw") {
  std::vector<float> logits;
  for (int i = 0; i < 50; ++i) logits.push_back(static_cast<float>(i * 37 % 11));
  SamplingOptions all, many, one;
  many.top_k = 1000, one.top_k = 50;
  for (int i = 0; i < 200; ++i) {
    const int32_t token = SampleToken(logits, all, i);
    CHECK(SampleToken(logits, many, i) == token);
    CHECK(SampleToken(logits, one, i) == token);
  }
  SamplingOptions tiny;
  tiny.temperature = 1e-6;  // as good as greedy: weights underflow, none is NaN
  tiny.top_k = 3;
  CHECK(SampleToken(logits, tiny, 1) >= 0);
}

TEST_CASE("windows: all of a text within the context, then steps of half a context") {
  CHECK(WindowBegin(1, 8) == 0);
  CHECK(WindowBegin(8, 8) == 0);
  CHECK(WindowBegin(9, 8) == 4);
  CHECK(WindowBegin(12, 8) == 4);
  CHECK(WindowBegin(13, 8) == 8);
  for (int64_t context : {1, 2, 3, 7, 8})
    for (int64_t length = 1; length < 60; ++length) {
      const int64_t left = length - WindowBegin(length, context);
      CAPTURE(context, length);
      CHECK(left >= 1);
      CHECK(left <= context);
      if (length > context) CHECK(left > context - std::max<int64_t>(1, context / 2));
    }
}

TEST_CASE("cached logits are those computed anew bit for bit, and training's within rounding, at every length") {
  const std::string shape = GENERATE(kGpt2, kLlama, kQwen);
  CAPTURE(shape);
  TempFolder folder;
  folder.Write("x.txt", std::string(1000, 'x'));
  const auto checkpoint = WriteModel(folder, "model", shape, 20, 5);
  LanguageModel cached(checkpoint, 1), threads(checkpoint, 3), anew(checkpoint, 2);
  anew.KeepCache(false);
  CHECK(cached.context() == 20);
  CHECK(cached.cache_bytes() > 0);
  std::vector<int32_t> text;
  for (int64_t length = 1; length <= 50; ++length) {
    text = Text(length);
    CAPTURE(length);
    const std::vector<float> logits = Logits(cached, text);
    REQUIRE(Logits(anew, text) == logits);
    if (length % 3 == 0) REQUIRE(Logits(threads, text) == logits);  // prompts in pieces of three
    const std::vector<float> training = TrainingLogits(checkpoint, Window(text, 20));
    REQUIRE(Distance(logits, training) < 2e-5 * (1 + std::abs(double{training[Likeliest(training)]})));
    REQUIRE(Likeliest(logits) == Likeliest(training));
  }
}

TEST_CASE("a cache serves any text that comes") {
  TempFolder folder;
  folder.Write("x.txt", std::string(1000, 'x'));
  const auto checkpoint = WriteModel(folder, "model", kLlama, 48, 5);
  LanguageModel model(checkpoint, 1);
  auto fresh = [&](const std::vector<int32_t>& text) {
    LanguageModel other(checkpoint, 1);
    return Logits(other, text);
  };
  std::vector<int32_t> a = Text(30), b = a, c = Text(12);
  b[17] = 200;
  for (const std::vector<int32_t>& text : {a, b, c, a, a, Text(47), b}) CHECK(Logits(model, text) == fresh(text));
  CHECK(Distance(fresh(a), fresh(b)) > 1e-3);
  CHECK_THROWS_AS(model.Logits({}), RuntimeError);
  std::vector<int32_t> outside = a;
  outside.push_back(257);
  CHECK_THROWS_AS(model.Logits(outside), RuntimeError);
  CHECK(Logits(model, a) == fresh(a));
}

TEST_CASE("a long prompt is computed in pieces, to the same bits") {
  TempFolder folder;
  folder.Write("x.txt", std::string(1000, 'x'));
  const std::string shape = "{layers: 1, hidden: 16, heads: 2, vocabulary: 257, max_positions: 400, position: learned}";
  const auto checkpoint = WriteModel(folder, "long", shape, 300, 5);
  LanguageModel whole(checkpoint, 2), steps(checkpoint, 1);
  const std::vector<int32_t> text = Text(290);
  for (int64_t length : {1, 127, 128, 129, 256, 257, 290})
    CHECK(Logits(steps, {text.begin(), text.begin() + length}).size() == 257);
  CHECK(Logits(whole, text) == Logits(steps, text));
  CHECK(Distance(Logits(whole, text), TrainingLogits(checkpoint, text)) < 1e-4);
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
