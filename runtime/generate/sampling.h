// The next token from a model's logits.
#pragma once

#include <cstdint>
#include <span>

namespace ds {

struct SamplingOptions {
  double temperature = 0.8;  ///< divides the logits; 0: always the likeliest token
  int64_t top_k = 0;         ///< only the k likeliest tokens; 0: all
  double top_p = 1.0;        ///< only the likeliest tokens that together reach this probability (nucleus sampling,
                             ///< Holtzman et al. 2019)
  uint64_t seed = 0;
};

/// Throws UsageError: an option out of its range.
void Check(const SamplingOptions& options);

/// The token drawn at `position` of the text: a pure function of its arguments. Filters apply in the order temperature,
/// top-k, top-p; equal logits rank by token. Throws RuntimeError: a logit is NaN or infinite.
int32_t SampleToken(std::span<const float> logits, const SamplingOptions& options, int64_t position);

}  // namespace ds
