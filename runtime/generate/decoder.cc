#include "runtime/generate/decoder.h"

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/cached_attention.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/row_matmul.h"
#include "runtime/base/error.h"
#include "runtime/segments/rope_tables.h"

namespace ds {
namespace {

constexpr int64_t kChunk = 128;  ///< rows at a time: a long prompt's activations stay small

struct NormWeights {
  Tensor weight, bias;
};
struct LinearWeights {
  Tensor weight, bias;
};
struct Layer {
  NormWeights attention_norm, mlp_norm;
  LinearWeights qkv, proj, up, down;
  std::vector<float> keys, values;  // [kv_heads, context, head_size]
};

/// Memory for `rows` rows of some width; grows to the most that was asked for.
class Rows {
 public:
  Tensor Take(int64_t rows, int64_t width) {
    data_.resize(std::max(data_.size(), static_cast<size_t>(rows * width)));
    return Tensor::Of(data_.data(), {rows, width});
  }

 private:
  std::vector<float> data_;
};

/// Rows [begin, begin + count) of a table.
Tensor RowsOf(const Tensor& table, int64_t begin, int64_t count) {
  const int64_t width = table.shape[1];
  return table.Flat(begin * width, count * width).View({count, width});
}

}  // namespace

struct Decoder::Impl {
  ModelConfig model;
  int64_t context, position = 0;
  KernelContext kernel;
  Tensor tokens_table, positions_table, head;
  NormWeights head_norm;
  std::vector<Layer> layers;
  std::shared_ptr<const RopeTables> rope;  // null: learned positions
  Rows x, normed, qkv, attended, projected, pre, activated, mean, rstd, logits;

  void Norm(const NormWeights& weights, Tensor in, Tensor out) {
    Tensor scale = rstd.Take(in.shape[0], 1).Flat();
    if (model.norm == ds::Norm::layer_norm)
      LayerNormForward(kernel, in, weights.weight, weights.bias, model.norm_eps, out, mean.Take(in.shape[0], 1).Flat(),
                       scale);
    else
      RmsNormForward(kernel, in, weights.weight, model.norm_eps, out, scale);
  }

  /// in + (x W^T + b), into in.
  void AddLinear(const LinearWeights& weights, Tensor from, Tensor to) {
    Tensor projection = projected.Take(to.shape[0], model.hidden);
    RowMatMul(kernel, from, weights.weight, weights.bias, projection);
    Add(kernel, to, projection, to);
  }

  void Attention(Layer& layer, Tensor stream) {
    const int64_t rows = stream.shape[0], slots = model.heads + 2 * model.kv_heads, size = model.head_size();
    Tensor in = normed.Take(rows, model.hidden), heads = qkv.Take(rows, slots * size);
    Norm(layer.attention_norm, stream, in);
    RowMatMul(kernel, in, layer.qkv.weight, layer.qkv.bias, heads);
    if (rope)
      Rope(kernel, heads.View({1, rows, slots, size}), model.heads + model.kv_heads,
           RowsOf(rope->cos(), position, rows), RowsOf(rope->sin(), position, rows), /*inverse=*/false);
    const Shape cache{model.kv_heads, context, size};
    Tensor out = attended.Take(rows, model.heads * size);
    CachedAttention(kernel, {rows, position, context, model.heads, model.kv_heads, size}, heads,
                    Tensor::Of(layer.keys.data(), cache), Tensor::Of(layer.values.data(), cache), out);
    AddLinear(layer.proj, out, stream);
  }

  void Mlp(const Layer& layer, Tensor stream) {
    const int64_t rows = stream.shape[0];
    Tensor in = normed.Take(rows, model.hidden), up = pre.Take(rows, layer.up.weight.shape[0]);
    Tensor out = activated.Take(rows, model.ffn);
    Norm(layer.mlp_norm, stream, in);
    RowMatMul(kernel, in, layer.up.weight, layer.up.bias, up);
    if (model.activation == Activation::swiglu)
      SwigluForward(kernel, up, out);
    else
      GeluForward(kernel, model.activation == Activation::gelu ? GeluKind::exact : GeluKind::tanh, up, out);
    AddLinear(layer.down, out, stream);
  }

  /// The residual stream of `tokens` behind all layers.
  Tensor Run(std::span<const int32_t> tokens) {
    const int64_t rows = static_cast<int64_t>(tokens.size());
    Tensor stream = x.Take(rows, model.hidden);
    EmbeddingForward(kernel, Tensor::Of(tokens.data(), {1, rows}), tokens_table,
                     positions_table ? RowsOf(positions_table, position, rows) : Tensor(),
                     stream.View({1, rows, model.hidden}));
    for (Layer& layer : layers) {
      Attention(layer, stream);
      Mlp(layer, stream);
    }
    position += rows;
    return stream;
  }
};

Decoder::Decoder(const ModelConfig& model, int64_t context, const std::map<std::string, Tensor>& parameters,
                 const KernelContext& kernel)
    : impl_(std::make_unique<Impl>()) {
  const auto find = [&parameters](const std::string& name) {
    const auto found = parameters.find(name);
    return found == parameters.end() ? Tensor() : found->second;
  };
  const auto need = [&find](const std::string& name) {
    Tensor tensor = find(name);
    if (!tensor) throw RuntimeError("the model has no parameter " + name);
    return tensor;
  };
  const auto norm = [&](const std::string& name) { return NormWeights{need(name + ".weight"), find(name + ".bias")}; };
  const auto linear = [&](const std::string& name) {
    return LinearWeights{need(name + ".weight"), find(name + ".bias")};
  };
  Impl& d = *impl_;
  d.model = model, d.context = context, d.kernel = kernel;
  d.tokens_table = need("embedding.tokens.weight");
  if (model.position == PositionKind::learned) d.positions_table = need("embedding.positions.weight");
  if (model.position == PositionKind::rope)
    d.rope = SharedRopeTables(model.rope_theta, context, model.head_size(), DType::f32, nullptr);
  const size_t cache = static_cast<size_t>(model.kv_heads * context * model.head_size());
  const std::string up = model.activation == Activation::swiglu ? "gate_up" : "up";
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    d.layers.push_back({norm(name + "attention.norm"), norm(name + "mlp.norm"), linear(name + "attention.qkv"),
                        linear(name + "attention.proj"), linear(name + "mlp." + up), linear(name + "mlp.down"),
                        std::vector<float>(cache), std::vector<float>(cache)});
  }
  d.head_norm = norm("head.norm");
  d.head = model.tied_head ? d.tokens_table : need("head.weight");
}

Decoder::~Decoder() = default;

int64_t Decoder::position() const { return impl_->position; }

void Decoder::Truncate(int64_t position) { impl_->position = std::clamp<int64_t>(position, 0, impl_->position); }

int64_t Decoder::cache_bytes() const {
  const ModelConfig& m = impl_->model;
  return 2 * m.layers * m.kv_heads * impl_->context * m.head_size() * static_cast<int64_t>(sizeof(float));
}

void Decoder::Forward(std::span<const int32_t> tokens, std::span<float> logits) {
  Impl& d = *impl_;
  if (tokens.empty()) throw RuntimeError("no tokens to compute");
  if (static_cast<int64_t>(tokens.size()) > d.context - d.position)
    throw RuntimeError(std::to_string(tokens.size()) + " tokens behind position " + std::to_string(d.position) +
                       " do not fit a context of " + std::to_string(d.context));
  for (int32_t token : tokens)
    if (token < 0 || token >= d.model.vocabulary)
      throw RuntimeError("token " + std::to_string(token) + " is not in the vocabulary of " +
                         std::to_string(d.model.vocabulary));
  Tensor stream;
  while (!tokens.empty()) {
    const size_t count = std::min<size_t>(tokens.size(), kChunk);
    stream = d.Run(tokens.first(count));
    tokens = tokens.subspan(count);
  }
  Tensor last = RowsOf(stream, stream.shape[0] - 1, 1), in = d.normed.Take(1, d.model.hidden);
  d.Norm(d.head_norm, last, in);
  Tensor all = d.logits.Take(1, d.model.padded_vocabulary());
  RowMatMul(d.kernel, in, d.head, {}, all);
  std::copy_n(all.as<float>(), d.model.vocabulary, logits.begin());
}

}  // namespace ds
