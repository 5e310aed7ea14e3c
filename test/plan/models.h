// Models and settings that the tests of layouts and plans share.
#pragma once

#include "runtime/plan/planner.h"

namespace ds::test {

/// GPT-2-shaped: learned positions, LayerNorm, GELU, biases, tied head.
inline ModelConfig TinyGpt(int64_t layers = 2) {
  ModelConfig m;
  m.layers = layers;
  m.hidden = 64;
  m.heads = m.kv_heads = 4;
  m.ffn = 256;
  m.vocabulary = 257;
  m.max_positions = 32;
  m.dropout = 0.1;
  return m;
}

/// LLaMA-shaped: RoPE, RMSNorm, SwiGLU, grouped queries, no biases, untied head.
inline ModelConfig TinyLlama(int64_t layers = 2) {
  ModelConfig m = TinyGpt(layers);
  m.kv_heads = 2;
  m.ffn = 192;
  m.norm = Norm::rms_norm;
  m.position = PositionKind::rope;
  m.activation = Activation::swiglu;
  m.bias = m.qkv_bias = m.tied_head = false;
  m.dropout = 0;
  return m;
}

/// Small buckets, so that units have several, and a threshold that leaves norms and biases persistent.
inline ZeroConfig SmallZero(int stage = 0) {
  ZeroConfig z;
  z.stage = stage;
  z.reduce_bucket_size = 8192;
  z.param_persistence_threshold = 1000;
  return z;
}

inline ModelLayout TinyLayout(const ModelConfig& model, const ZeroConfig& zero, int ranks, DType compute = DType::f32,
                              MicroBatchShape shape = {2, 16}, RecomputeMode recompute = RecomputeMode::none,
                              bool fp8 = false) {
  return BuildLayout(BuildSegments(model, compute, shape, false, recompute, fp8), zero, ranks);
}

}  // namespace ds::test
