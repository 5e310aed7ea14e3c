// Promise: attention within documents makes of a packed sample what its documents are alone: the same loss and the same
// gradient of every parameter, in fp64.
#include <cmath>
#include <random>

#include "test/catch.h"
#include "test/parity/model.h"

namespace ds::test {
namespace {

constexpr int32_t kEnd = 30;
constexpr int64_t kSamples = 2, kTokens = 150;

/// Positions are relative: a document alone has those that it has in a sample.
ModelConfig RopeModel() {
  ModelConfig m;
  m.layers = 2;
  m.hidden = 32;
  m.heads = 4;
  m.kv_heads = 2;
  m.ffn = 48;
  m.vocabulary = 31;
  m.max_positions = kTokens;
  m.norm = Norm::rms_norm;
  m.position = PositionKind::rope;
  m.activation = Activation::swiglu;
  m.bias = m.qkv_bias = m.tied_head = false;
  return m;
}

/// The same parameters for every model, zero in the padding; matrices larger than at a training's start, so that
/// attention is far from uniform.
void FillParameters(Model& model) {
  std::mt19937 generator(5);
  std::normal_distribution<double> normal(0, 0.3);
  for (Model::Parameter& p : model.parameters())
    for (int64_t i = 0; i < p.value.numel(); ++i) WriteElement(p.value, i, i < p.real_numel() ? normal(generator) : 0);
}

/// T + 1 tokens a sample, cut into documents: in the first sample of 1, 70 and 3 tokens and one that goes on behind it;
/// the second begins in the middle of one.
std::vector<double> PackedTokens() {
  std::mt19937 generator(6);
  std::vector<double> tokens(kSamples * (kTokens + 1));
  for (double& token : tokens) token = static_cast<double>(generator() % kEnd);
  for (int64_t end : {0, 70, 73}) tokens[static_cast<size_t>(end)] = kEnd;
  for (int64_t end : {4, 100, 149}) tokens[static_cast<size_t>(kTokens + 1 + end)] = kEnd;
  return tokens;
}

struct Result {
  double loss = 0;  ///< summed over tokens
  std::vector<std::vector<double>> gradients;
};

Result Compute(int64_t samples, int64_t length, const std::vector<double>& tokens, int32_t end_of_document) {
  Model model(RopeModel(), DType::f64, {samples, length}, end_of_document);
  FillParameters(model);
  const double count = static_cast<double>(samples * length);
  Result result{model.Forward(tokens) * count, {}};
  model.Backward();
  for (const Model::Parameter& p : model.parameters()) {
    std::vector<double>& sum = result.gradients.emplace_back(static_cast<size_t>(p.value.numel()));
    for (const Tensor& g : p.gradients)
      for (int64_t i = 0; i < g.numel(); ++i) sum[static_cast<size_t>(i)] += ReadElement(g, i) * count;
  }
  return result;
}

/// Each document as a sample of its own, the token behind it the last target.
Result ComputeAlone(const std::vector<double>& tokens) {
  Result sum;
  for (int64_t b = 0; b < kSamples; ++b) {
    const double* sample = tokens.data() + b * (kTokens + 1);
    for (int64_t begin = 0, end = 0; begin < kTokens; begin = end) {
      for (end = begin + 1; end < kTokens && sample[end - 1] != kEnd;) ++end;
      const Result one = Compute(1, end - begin, std::vector<double>(sample + begin, sample + end + 1), -1);
      sum.loss += one.loss;
      sum.gradients.resize(one.gradients.size());
      for (size_t p = 0; p < one.gradients.size(); ++p) {
        sum.gradients[p].resize(one.gradients[p].size());
        for (size_t i = 0; i < one.gradients[p].size(); ++i) sum.gradients[p][i] += one.gradients[p][i];
      }
    }
  }
  return sum;
}

/// Largest difference of any gradient's element over that gradient's largest element.
double GradientDifference(const Result& a, const Result& b) {
  double largest = 0;
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (size_t p = 0; p < a.gradients.size(); ++p) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < a.gradients[p].size(); ++i) {
      const double d = std::abs(a.gradients[p][i] - b.gradients[p][i]);
      if (!(d <= difference)) difference = d;  // NaN counts
      size = std::max(size, std::abs(b.gradients[p][i]));
    }
    REQUIRE(size > 0);
    if (!(difference / size <= largest)) largest = difference / size;
  }
  return largest;
}

}  // namespace

TEST_CASE("a packed batch's loss and gradients are those of its documents alone") {
  const std::vector<double> tokens = PackedTokens();
  const Result packed = Compute(kSamples, kTokens, tokens, kEnd), alone = ComputeAlone(tokens);
  CHECK(std::abs(packed.loss - alone.loss) < 1e-12 * alone.loss);
  CHECK(GradientDifference(packed, alone) < 1e-11);

  // Attention across documents is something else.
  const Result across = Compute(kSamples, kTokens, tokens, -1);
  CHECK(std::abs(across.loss - alone.loss) > 1e-3 * alone.loss);
  CHECK(GradientDifference(across, alone) > 1e-2);
}

}  // namespace ds::test
