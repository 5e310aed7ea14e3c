// The forward pass of generation: tokens in order, keys and values of all layers kept, so that the next token costs one
// token's work.
//
// It is written over other kernels than training's segments: each row of every kernel here has the same bits whatever
// is computed beside it. So logits are a function of the tokens alone: not of how they came, in pieces or at once, with
// a cache or from an empty one, nor of the thread count. From training's forward they differ by rounding.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/tensor.h"
#include "runtime/job/job_spec.h"

namespace ds {

class Decoder {
 public:
  /// `parameters` by the names of BuildSegments, f32, with its padding; not owned. `context`: positions to make room
  /// for: at most max_positions where positions are learned. Throws RuntimeError: a parameter is missing.
  Decoder(const ModelConfig& model, int64_t context, const std::map<std::string, Tensor>& parameters,
          const KernelContext& kernel);
  ~Decoder();

  int64_t position() const;         ///< tokens that are cached
  void Truncate(int64_t position);  ///< forgets those from `position` on
  int64_t cache_bytes() const;
  /// Computes `tokens` (not empty, in the vocabulary) at positions position(), position() + 1, ...; the logits
  /// [vocabulary] of the token after the last. Throws RuntimeError: no room for them, a token out of range.
  void Forward(std::span<const int32_t> tokens, std::span<float> logits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
