#include "runtime/job/presets.h"

namespace ds {
namespace {

Preset Gpt2(const char* name, const char* source, int64_t layers, int64_t hidden, int64_t heads, int64_t vocabulary,
            int64_t max_positions) {
  ModelConfig model;  // the defaults of a ModelConfig are GPT-2's
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.vocabulary = vocabulary;
  model.max_positions = max_positions;
  return {name, source, model, false};
}

/// LLaMA's block: RMSNorm, RoPE, SwiGLU, no biases.
Preset Llama(const char* name, const char* source, int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
             int64_t ffn, int64_t vocabulary, int64_t max_positions, double rope_theta, bool tied_head) {
  ModelConfig model;
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = kv_heads;
  model.ffn = ffn;
  model.vocabulary = vocabulary;
  model.max_positions = max_positions;
  model.norm = Norm::rms_norm;
  model.norm_eps = 1e-5;
  model.position = PositionKind::rope;
  model.rope_theta = rope_theta;
  model.activation = Activation::swiglu;
  model.bias = false;
  model.qkv_bias = false;
  model.tied_head = tied_head;
  return {name, source, model, false};
}

/// LLaMA's block with a bias on the query, key and value projections.
Preset Qwen(const char* name, const char* source, int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
            int64_t ffn, int64_t vocabulary, int64_t max_positions, bool tied_head) {
  Preset preset = Llama(name, source, layers, hidden, heads, kv_heads, ffn, vocabulary, max_positions, 1e6, tied_head);
  preset.model.norm_eps = 1e-6;
  preset.model.qkv_bias = true;
  preset.own_qkv_bias = true;
  return preset;
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const std::vector<Preset> presets = {
      Gpt2("gpt2-tiny", "for tests", 2, 64, 4, 257, 128),
      Gpt2("gpt2-124m", "GPT-2 small", 12, 768, 12, 50257, 1024),
      Gpt2("gpt2-1.5b", "GPT-2 XL", 48, 1600, 25, 50257, 1024),
      Llama("llama-tiny", "for tests", 2, 64, 4, 2, 192, 257, 128, 10000, false),
      Llama("llama-1b", "Llama 3.2 1B", 16, 2048, 32, 8, 8192, 128256, 131072, 500000, true),
      Llama("llama-8b", "Llama 3 8B", 32, 4096, 32, 8, 14336, 128256, 8192, 500000, false),
      Qwen("qwen2.5-0.5b", "Qwen2.5 0.5B", 24, 896, 14, 2, 4864, 151936, 32768, true),
      Qwen("qwen2.5-1.5b", "Qwen2.5 1.5B", 28, 1536, 12, 2, 8960, 151936, 131072, true),
      Qwen("qwen2.5-7b", "Qwen2.5 7B", 28, 3584, 28, 4, 18944, 152064, 131072, false),
  };
  return presets;
}

const Preset* FindPreset(const std::string& name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace ds
