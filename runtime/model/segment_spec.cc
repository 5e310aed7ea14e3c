#include "runtime/model/segment_spec.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "kernels/fp8_linear.h"
#include "kernels/linear.h"
#include "kernels/workspace.h"

namespace ds {
namespace {

constexpr int64_t kTensorAlignment = 64;  // bytes: a cache line, and the widest vector

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// What the builders of the four kinds share.
struct Builder {
  const ModelConfig& model;
  DType compute;
  MicroBatchShape shape;
  bool reset_attention;
  RecomputeMode recompute;
  bool fp8;

  int64_t N() const { return shape.samples * shape.tokens; }
  int64_t D() const { return model.hidden; }
  int64_t F() const { return model.ffn; }
  int64_t QueryWidth() const { return model.heads * model.head_size(); }
  int64_t QkvWidth() const { return (model.heads + 2 * model.kv_heads) * model.head_size(); }
  bool Swiglu() const { return model.activation == Activation::swiglu; }
  int64_t UpWidth() const { return Swiglu() ? 2 * F() : F(); }
  bool SavesActivated() const { return !Swiglu() || recompute == RecomputeMode::none; }
  /// Statistics, logits and losses are kept in at least f32.
  DType Wide() const { return compute == DType::f64 ? DType::f64 : DType::f32; }
  /// GPT-2's scaling of what is added to the residual stream: two projections a layer.
  double ResidualStddev() const { return 0.02 / std::sqrt(2.0 * static_cast<double>(model.layers)); }

  TensorSpec T(const char* name, Shape s) const { return {name, compute, s}; }
  TensorSpec W(const char* name, Shape s) const { return {name, Wide(), s}; }

  void AddMatrix(SegmentSpec& s, const std::string& name, Shape shape, double stddev = 0.02,
                 int64_t real_rows = 0) const {
    s.params.push_back({name + ".weight", shape, true, InitKind::normal, stddev, real_rows});
  }
  void AddVector(SegmentSpec& s, const std::string& name, int64_t size, InitKind init) const {
    s.params.push_back({name, Shape{size}, false, init, 0.0, 0});
  }
  void AddLinear(SegmentSpec& s, const std::string& name, Shape shape, bool bias, double stddev = 0.02) const {
    AddMatrix(s, name, shape, stddev);
    if (bias) AddVector(s, name + ".bias", shape[0], InitKind::zeros);
  }
  void AddNorm(SegmentSpec& s, const std::string& name) const {
    AddVector(s, name + ".weight", D(), InitKind::ones);
    if (model.norm == Norm::layer_norm) AddVector(s, name + ".bias", D(), InitKind::zeros);
  }
  void SaveNorm(SegmentSpec& s) const {
    s.saved.push_back(T("normed", {N(), D()}));
    if (model.norm == Norm::layer_norm) s.saved.push_back(W("mean", {N()}));
    s.saved.push_back(W("rstd", {N()}));
  }
  void Output(SegmentSpec& s) const { s.output = {T("y", {N(), D()})}; }
  /// What GPU kernels of a segment need beside their tensors; `bias`: columns of its widest bias gradient, 0: none.
  int64_t GpuWorkspace(int64_t bias) const {
    const int64_t norm = ColumnSumsWorkspaceBytes(N(), D(), model.norm == Norm::layer_norm ? 2 : 1, compute);
    return std::max({norm, ColumnSumsWorkspaceBytes(N(), bias, 1, compute), MatMulWorkspaceBytes()});
  }
  /// The products of a linear layer [out, in]. The first of a half block: Recompute repeats its forward, with which
  /// GPUs may compute the GELU behind it (`fused`). The last: the residual stream is added to it, and GPUs may compute
  /// the GELU before it with its backward.
  enum class Place { first, last, head };
  void Multiply(SegmentSpec& s, Place place, int64_t out, int64_t in, bool bias,
                MatMulEpilogue fused = MatMulEpilogue::none) const {
    const MatMulEpilogue epilogue = bias ? MatMulEpilogue::bias : MatMulEpilogue::none, none = MatMulEpilogue::none;
    if (place != Place::head && Fp8(out, in)) return MultiplyFp8(s, place, out, in, epilogue);
    const MatMulKey forward{N(), out, in, compute, compute, false, true, false, epilogue};
    const bool first = place == Place::first, sixteen = SizeOf(compute) == 2;
    s.products.push_back({Pass::forward, forward, first ? fused : none, place == Place::last && sixteen});
    if (first) s.products.push_back({Pass::recompute, forward, fused});
    s.products.push_back({Pass::backward_input, {N(), in, out, compute, compute}, first ? none : fused});
    s.products.push_back({Pass::backward_weight, {out, in, N(), compute, Wide(), true}});
  }
  bool Fp8(int64_t out, int64_t in) const { return fp8 && Fp8Multiplies(N(), in, out); }
  /// The same in 8 bits. Both operands have k as their fastest index there, which quantising them sees to, and nothing
  /// but a bias is fused.
  void MultiplyFp8(SegmentSpec& s, Place place, int64_t out, int64_t in, MatMulEpilogue epilogue) const {
    const DType forward = DType::f8_e4m3, gradient = DType::f8_e5m2;
    const MatMulKey key{N(), out, in, forward, compute, false, true, false, epilogue};
    s.products.push_back({Pass::forward, key});
    if (place == Place::first) s.products.push_back({Pass::recompute, key});
    s.products.push_back({Pass::backward_input, {N(), in, out, gradient, compute, false, true}});
    s.products.push_back({Pass::backward_weight, {out, in, N(), gradient, Wide(), false, true}});
    s.gpu_workspace = std::max(s.gpu_workspace, Fp8LinearWorkspaceBytes(N(), in, out));
  }
  /// `epilogue` where GPUs fuse the GELU of this model (kernels/linear.h).
  MatMulEpilogue IfFused(MatMulEpilogue epilogue) const {
    const bool fused = model.activation == Activation::gelu_tanh && MayFuseGelu(GeluKind::tanh, compute, F());
    return fused ? epilogue : MatMulEpilogue::none;
  }
  void CarryDropped(SegmentSpec& s) const {
    if (model.dropout > 0) s.carried.push_back(T("dropped_dy", {N(), D()}));
  }

  SegmentSpec Embedding() const;
  SegmentSpec Attention(int64_t layer) const;
  SegmentSpec Mlp(int64_t layer) const;
  SegmentSpec Head() const;
};

SegmentSpec Builder::Embedding() const {
  SegmentSpec s;
  s.kind = SegmentKind::embedding;
  s.name = "embedding";
  Output(s);
  AddMatrix(s, "embedding.tokens", {model.padded_vocabulary(), D()}, 0.02, model.vocabulary);
  if (model.position == PositionKind::learned) AddMatrix(s, "embedding.positions", {model.max_positions, D()});
  if (model.dropout > 0) s.backward_weight_scratch = LayOut({T("dropped_dy", {N(), D()})});
  s.gpu_workspace = std::max(GpuWorkspace(0), EmbeddingBackwardWorkspaceBytes(N()));
  const double elements = static_cast<double>(N() * D());
  s.forward_flops = 2 * elements;
  s.backward_weight_flops = 2 * elements;
  return s;
}

SegmentSpec Builder::Attention(int64_t layer) const {
  SegmentSpec s;
  s.kind = SegmentKind::attention;
  s.layer = layer;
  s.name = "layer" + std::to_string(layer) + ".attention";
  s.reset_attention = reset_attention;
  s.fp8 = fp8;
  Output(s);
  const std::string name = "layers." + std::to_string(layer) + ".attention.";
  AddNorm(s, name + "norm");
  AddLinear(s, name + "qkv", {QkvWidth(), D()}, model.qkv_bias);
  AddLinear(s, name + "proj", {D(), QueryWidth()}, model.bias, ResidualStddev());

  SaveNorm(s);
  s.saved.push_back(T("qkv", {N(), QkvWidth()}));
  s.saved.push_back(T("attended", {N(), QueryWidth()}));
  s.saved.push_back(W("log_sum_exp", {shape.samples, model.heads, shape.tokens}));
  s.carried = {T("dqkv", {N(), QkvWidth()}), T("dnormed", {N(), D()})};
  CarryDropped(s);
  if (model.dropout > 0) s.forward_scratch = LayOut({T("projection", {N(), D()})});
  s.backward_input_scratch = LayOut({T("dattended", {N(), QueryWidth()})});

  const AttentionShape attention{shape.samples, shape.tokens, model.heads, model.kv_heads, model.head_size()};
  s.gpu_workspace = std::max({GpuWorkspace(std::max(model.qkv_bias ? QkvWidth() : 0, model.bias ? D() : 0)),
                              AttentionWorkspaceBytes(attention, compute, false, reset_attention),
                              AttentionWorkspaceBytes(attention, compute, true, reset_attention)});

  if (model.position == PositionKind::rope)  // cosines and sines
    s.gpu_tables = 2 * shape.tokens * (model.head_size() / 2) * static_cast<int64_t>(SizeOf(Wide()));

  // Causal attention reads half of the scores: two products forward; five backward, the scores computed again.
  const double qkv = 2.0 * N() * D() * QkvWidth();
  const double proj = 2.0 * N() * D() * QueryWidth();
  const double product = 1.0 * N() * shape.tokens * QueryWidth();
  s.recompute_flops = qkv + 2 * product;
  s.forward_flops = s.recompute_flops + proj;
  s.backward_input_flops = qkv + proj + 5 * product;
  s.backward_weight_flops = qkv + proj;
  Multiply(s, Place::first, QkvWidth(), D(), model.qkv_bias);
  Multiply(s, Place::last, D(), QueryWidth(), model.bias);
  s.attention = {shape.tokens, model.head_size(), product};
  return s;
}

SegmentSpec Builder::Mlp(int64_t layer) const {
  SegmentSpec s;
  s.kind = SegmentKind::mlp;
  s.layer = layer;
  s.fp8 = fp8;
  s.name = "layer" + std::to_string(layer) + ".mlp";
  Output(s);
  const std::string name = "layers." + std::to_string(layer) + ".mlp.";
  AddNorm(s, name + "norm");
  AddLinear(s, name + (Swiglu() ? "gate_up" : "up"), {UpWidth(), D()}, model.bias);
  AddLinear(s, name + "down", {D(), F()}, model.bias, ResidualStddev());

  SaveNorm(s);
  s.saved.push_back(T("pre", {N(), UpWidth()}));
  s.carried = {T("dpre", {N(), UpWidth()}), T("dnormed", {N(), D()})};
  CarryDropped(s);
  std::vector<TensorSpec> again;  // computed in forward, and again in backward_weight
  (SavesActivated() ? s.saved : again).push_back(T("activated", {N(), F()}));
  s.backward_weight_scratch = LayOut(again);
  if (model.dropout > 0) again.push_back(T("projection", {N(), D()}));
  s.forward_scratch = LayOut(again);
  if (Swiglu()) s.backward_input_scratch = LayOut({T("dactivated", {N(), F()})});

  s.gpu_workspace = GpuWorkspace(model.bias ? std::max(UpWidth(), D()) : 0);

  const double up = 2.0 * N() * D() * UpWidth();
  const double down = 2.0 * N() * D() * F();
  s.recompute_flops = up;
  s.forward_flops = s.backward_input_flops = s.backward_weight_flops = up + down;
  Multiply(s, Place::first, UpWidth(), D(), model.bias,
           IfFused(model.bias ? MatMulEpilogue::bias_gelu : MatMulEpilogue::gelu));
  Multiply(s, Place::last, D(), F(), model.bias, IfFused(MatMulEpilogue::gelu_backward));
  return s;
}

SegmentSpec Builder::Head() const {
  SegmentSpec s;
  s.kind = SegmentKind::head;
  s.name = "head";
  s.tied = model.tied_head;
  const int64_t columns = model.padded_vocabulary();
  AddNorm(s, "head.norm");
  if (!s.tied) AddMatrix(s, "head", {columns, D()}, 0.02, model.vocabulary);
  SaveNorm(s);
  s.saved.push_back(T("dlogits", {N(), columns}));
  s.carried = {T("dnormed", {N(), D()})};
  s.forward_scratch = LayOut({W("logits", {std::min(N(), kHeadRows), columns}), W("losses", {N()})});
  s.gpu_workspace = GpuWorkspace(0);
  const double product = 2.0 * N() * D() * columns;
  s.forward_flops = s.backward_input_flops = s.backward_weight_flops = product;
  Multiply(s, Place::head, columns, D(), false);
  return s;
}

}  // namespace

int64_t LayOut(const std::vector<TensorSpec>& tensors, std::vector<int64_t>* offsets) {
  int64_t end = 0;
  if (offsets) offsets->clear();
  for (const TensorSpec& t : tensors) {
    if (offsets) offsets->push_back(end);
    end = AlignUp(end + t.shape.numel() * static_cast<int64_t>(SizeOf(t.dtype)), kTensorAlignment);
  }
  return end;
}

std::vector<SegmentSpec> BuildSegments(const ModelConfig& model, DType compute, MicroBatchShape shape,
                                       bool reset_attention, RecomputeMode recompute, bool fp8) {
  if (fp8 && compute != DType::bf16) throw std::invalid_argument("BuildSegments: 8-bit products need bf16");
  const Builder builder{model, compute, shape, reset_attention, recompute, fp8};
  std::vector<SegmentSpec> segments;
  segments.push_back(builder.Embedding());
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    segments.push_back(builder.Attention(layer));
    segments.push_back(builder.Mlp(layer));
  }
  segments.push_back(builder.Head());
  return segments;
}

}  // namespace ds
