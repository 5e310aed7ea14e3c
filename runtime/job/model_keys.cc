#include "runtime/job/key_sections.h"

#include "runtime/job/key_rows.h"
#include "runtime/job/presets.h"

namespace ds {

using namespace key_rows;

namespace {

std::string ReadPreset(const Value& value) {
  const std::string& name = AsString(value);
  if (FindPreset(name) != nullptr) return name;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  throw ValueError(value, "unknown preset; the nearest of " + Join(names, ", ") + " is " + Nearest(name, names));
}

Key PositionKey() {
  Key key = Choice("model.position", DS_KEY_FIELD(model.position), kPositionNames, nullptr,
                   "how a token's place enters: a learned table, or rotary embedding (element i turns with element i + "
                   "size / 2, as LLaMA in Transformers)");
  const auto read = key.read;
  key.read = [read](JobSpec& spec, const Value& value) {
    if (value.kind == Value::Kind::scalar && Plain(value.text) == "alibi") {
      throw ValueError(value, "this version has no ALiBi; write learned or rope");
    }
    read(spec, value);
  };
  return key;
}

}  // namespace

std::vector<Key> ModelKeys() {
  return {
      Row(
          "model.preset", "a name of the table below", "none", "a published shape; any key below overrides it",
          [](JobSpec& spec, const Value& value) { spec.preset = ReadPreset(value); },
          [](const JobSpec& spec) { return spec.preset.empty() ? std::string("null") : YamlScalar(spec.preset); }),
      Integer("model.layers", DS_KEY_FIELD(model.layers), 1, 100'000, "-", "transformer blocks"),
      Integer("model.hidden", DS_KEY_FIELD(model.hidden), 1, 1 << 20, "-",
              "width of the residual stream; a multiple of heads"),
      Integer("model.heads", DS_KEY_FIELD(model.heads), 1, 1 << 16, "-", "attention heads; a multiple of kv_heads"),
      Integer("model.kv_heads", DS_KEY_FIELD(model.kv_heads), 1, 1 << 16, "heads",
              "key and value heads (grouped-query attention)"),
      Integer("model.ffn", DS_KEY_FIELD(model.ffn), 1, 1 << 24,
              "4 hidden; swiglu: 8/3 hidden, rounded up to a multiple of 64", "width inside the MLP"),
      Integer("model.vocabulary", DS_KEY_FIELD(model.vocabulary), 1, 1 << 28, "the tokenizer's: 257 for bytes",
              "tokens; padded inside to a multiple of 64, loss and export see the real one"),
      Integer("model.max_positions", DS_KEY_FIELD(model.max_positions), 1, 1 << 30, "data.sequence_length",
              "longest sequence; rows of the table of learned positions"),
      Choice("model.norm", DS_KEY_FIELD(model.norm), kNormNames, nullptr,
             "normalisation before each half of a block and the head"),
      Number("model.norm_eps", "number above 0", DS_KEY_FIELD(model.norm_eps), ReadPositive, nullptr,
             "added to the variance"),
      PositionKey(),
      Number("model.rope_theta", "number above 0", DS_KEY_FIELD(model.rope_theta), ReadPositive, nullptr,
             "base of the rotary frequencies; of use with rope only"),
      Choice("model.activation", DS_KEY_FIELD(model.activation), kActivationNames, nullptr,
             "of the MLP: exact GELU, its tanh form (GPT-2's), gated SiLU"),
      Flag("model.bias", DS_KEY_FIELD(model.bias), nullptr, "biases of linear layers and of layer_norm"),
      Flag("model.qkv_bias", DS_KEY_FIELD(model.qkv_bias), "model.bias; the preset's own for qwen2.5",
           "bias of the query, key and value projections"),
      Flag("model.tied_head", DS_KEY_FIELD(model.tied_head), nullptr, "the output projection is the token embedding"),
      Number("model.dropout", "number in [0, 1)", DS_KEY_FIELD(model.dropout), ReadFraction, nullptr,
             "after the embedding, on attention probabilities and on both residual branches"),
  };
}

}  // namespace ds
