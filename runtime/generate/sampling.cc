#include "runtime/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/random.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

/// Uniform in [0, 1) with 53 bits.
double Uniform(uint64_t seed, uint64_t position) {
  const auto block = Philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

void Check(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    throw UsageError("the temperature must not be negative");
  if (options.top_k < 0) throw UsageError("top-k must not be negative; 0 takes all tokens");
  if (!(options.top_p > 0 && options.top_p <= 1)) throw UsageError("top-p must be above 0 and at most 1");
}

int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, int64_t position) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i]))
      throw RuntimeError("the model's logit of token " + std::to_string(i) + " is " + std::to_string(logits[i]));
  if (options.temperature == 0)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  size_t candidates = order.size();
  if (options.top_k > 0) candidates = std::min(candidates, static_cast<size_t>(options.top_k));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(candidates), order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  order.resize(candidates);

  std::vector<double> weights;
  double sum = 0;
  for (int32_t token : order) {
    weights.push_back(std::exp((double{logits[token]} - logits[order[0]]) / options.temperature));
    sum += weights.back();
  }
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * sum)) kept += weights[count++];

  double point = Uniform(options.seed, static_cast<uint64_t>(position)) * kept;
  for (size_t i = 0; i + 1 < count; ++i)
    if ((point -= weights[i]) < 0) return order[i];
  return order[count - 1];
}

}  // namespace ds
