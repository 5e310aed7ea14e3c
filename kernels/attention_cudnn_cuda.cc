// Attention by cuDNN's fused kernels. The graphs have the form that cuDNN knows as attention ("Fused Flash Attention"
// in its documentation of graph patterns): scores, mask, softmax and products as single operations.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "kernels/attention_paths.h"
#include "kernels/check.h"
#include "kernels/cuda_check.h"
#include "kernels/cudnn_graph.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

using Node = CudnnGraph::Node;
using Sizes = CudnnGraph::Sizes;

/// What a plan computes: `shape`, a part of tensors with all_heads and all_kv_heads.
struct PlanKey {
  AttentionShape shape;
  int64_t all_heads, all_kv_heads;
  DType dtype;
  bool backward, deterministic;
  int device;

  auto Tie() const {
    return std::tie(shape.batch, shape.tokens, shape.heads, shape.kv_heads, shape.head_size, all_heads, all_kv_heads,
                    dtype, backward, deterministic, device);
  }
  bool operator<(const PlanKey& other) const { return Tie() < other.Tie(); }
};

/// The tensors of a graph, and the operations that both passes have.
struct AttentionGraph {
  AttentionShape s;
  cudnnDataType_t type;
  int64_t all_heads, token_stride;
  Sizes scores, rows, queries, keys;
  CudnnGraph graph;

  explicit AttentionGraph(const PlanKey& key)
      : s(key.shape),
        type(key.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF),
        all_heads(key.all_heads),
        token_stride((key.all_heads + 2 * key.all_kv_heads) * s.head_size),
        scores{s.batch, s.heads, s.tokens, s.tokens},
        rows{s.batch, s.heads, s.tokens, 1},
        queries{s.batch, s.heads, s.tokens, s.head_size},
        keys{s.batch, s.kv_heads, s.tokens, s.head_size} {}

  Sizes HeadStrides() const { return {s.tokens * token_stride, s.head_size, token_stride, 1}; }
  /// Heads of qkv or dqkv, [B, heads, T, head_size].
  Node Heads(const Sizes& sizes) { return graph.Tensor(type, sizes, HeadStrides()); }
  /// Keys or values as the right operand of a product over head_size, [B, kv_heads, head_size, T].
  Node TransposedHeads() {
    return graph.Tensor(type, {s.batch, s.kv_heads, s.head_size, s.tokens},
                        {s.tokens * token_stride, s.head_size, 1, token_stride});
  }
  Node Out() {
    const int64_t stride = all_heads * s.head_size;
    return graph.Tensor(type, queries, {s.tokens * stride, s.head_size, stride, 1});
  }
  Node LogSumExp() { return graph.Tensor(CUDNN_DATA_FLOAT, rows, {all_heads * s.tokens, s.tokens, 1, 1}); }

  /// mode(x, b) of scores, in fp32.
  Node Apply(cudnnPointwiseMode_t mode, Node x, Node b) {
    return graph.Pointwise(mode, x, b, CUDNN_DATA_FLOAT, scores);
  }
  /// x, and -infinity where a row does not see a column.
  Node Mask(Node x, Node minus_infinity) {
    const Node row = graph.Index(x, 2, scores), column = graph.Index(x, 3, scores);
    const Node seen = graph.Pointwise(CUDNN_POINTWISE_CMP_GE, row, column, CUDNN_DATA_BOOLEAN, scores);
    return graph.Pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, minus_infinity, CUDNN_DATA_FLOAT, scores, nullptr, seen);
  }
};

/// Tensors in order: queries, keys, values, scale, -infinity, log_sum_exp, out.
void DescribeForward(AttentionGraph& g) {
  const Node q = g.Heads(g.queries), k = g.TransposedHeads(), v = g.Heads(g.keys);
  const Node scale = g.graph.Scalar(), minus_infinity = g.graph.Scalar();
  const Node log_sum_exp = g.LogSumExp(), out = g.Out();
  const Node products = g.graph.MatMul(q, k, CUDNN_DATA_FLOAT, g.scores);
  const Node x = g.Mask(g.Apply(CUDNN_POINTWISE_MUL, products, scale), minus_infinity);
  const Node largest = g.graph.Reduce(CUDNN_REDUCE_TENSOR_MAX, x, g.rows);
  const Node powers = g.Apply(CUDNN_POINTWISE_EXP, g.Apply(CUDNN_POINTWISE_SUB, x, largest), nullptr);
  const Node sum = g.graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, powers, g.rows);
  const Node log = g.graph.Pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, CUDNN_DATA_FLOAT, g.rows);
  g.graph.Pointwise(CUDNN_POINTWISE_ADD, largest, log, CUDNN_DATA_FLOAT, g.rows, log_sum_exp);
  const Node p = g.graph.Pointwise(CUDNN_POINTWISE_DIV, powers, sum, g.type, g.scores);
  g.graph.MatMul(p, v, g.type, g.queries, out);
}

/// Tensors in order: queries, keys, values, out, dout, log_sum_exp, scale, -infinity, one, delta, dqueries, dkeys,
/// dvalues and, unless deterministic, dqueries in fp32, to which blocks of keys add in any order.
void DescribeBackward(AttentionGraph& g, bool deterministic) {
  const AttentionShape& s = g.s;
  const Node q = g.Heads(g.queries), k = g.TransposedHeads(), v = g.TransposedHeads(), out = g.Out(), dout = g.Out();
  const Node log_sum_exp = g.LogSumExp(), scale = g.graph.Scalar(), minus_infinity = g.graph.Scalar();
  const Node one = g.graph.Scalar();
  const Node delta = g.graph.Tensor(CUDNN_DATA_FLOAT, g.rows, {s.heads * s.tokens, s.tokens, 1, 1});
  const Node dq = g.Heads(g.queries), dk = g.Heads(g.keys), dv = g.Heads(g.keys);

  // Of transposed scores and rows of queries, summed over the heads of a group.
  const auto sum_over_queries = [&](Node of_scores, Node right, Node into) {
    const Node left =
        g.graph.Reshape(of_scores, g.type, g.scores, {s.heads * s.tokens * s.tokens, s.tokens * s.tokens, 1, s.tokens});
    if (s.heads == s.kv_heads)
      g.graph.MatMul(left, right, g.type, g.queries, into);
    else
      g.graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, g.graph.MatMul(left, right, g.type, g.queries), g.keys, into);
  };

  // The pattern has a factor here, for dropout: it needs to be there.
  const Node terms = g.graph.Pointwise(CUDNN_POINTWISE_MUL, dout, out, CUDNN_DATA_FLOAT, g.queries);
  const Node dots = g.graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, terms, g.rows);
  g.graph.Pointwise(CUDNN_POINTWISE_MUL, dots, one, CUDNN_DATA_FLOAT, g.rows, delta);

  const Node scaled = g.Apply(CUDNN_POINTWISE_MUL, g.graph.MatMul(q, k, CUDNN_DATA_FLOAT, g.scores), scale);
  const Node x = g.Mask(g.Apply(CUDNN_POINTWISE_SUB, scaled, log_sum_exp), minus_infinity);
  const Node p = g.Apply(CUDNN_POINTWISE_EXP, x, nullptr);
  sum_over_queries(p, dout, dv);

  const Node dp = g.graph.MatMul(dout, v, CUDNN_DATA_FLOAT, g.scores);
  const Node times_p = g.Apply(CUDNN_POINTWISE_MUL, g.Apply(CUDNN_POINTWISE_SUB, dp, delta), p);
  const Node ds = g.Apply(CUDNN_POINTWISE_MUL, times_p, scale);
  sum_over_queries(ds, q, dk);

  const Node rows_of_keys = g.graph.Reshape(k, g.type, g.keys, g.HeadStrides());
  if (deterministic) {
    g.graph.MatMul(ds, rows_of_keys, g.type, g.queries, dq);
  } else {
    const Node sum = g.graph.Tensor(CUDNN_DATA_FLOAT, g.queries,
                                    {s.heads * s.tokens * s.head_size, s.tokens * s.head_size, s.head_size, 1});
    g.graph.MatMul(ds, rows_of_keys, CUDNN_DATA_FLOAT, g.queries, sum);
    g.graph.Pointwise(CUDNN_POINTWISE_IDENTITY, sum, nullptr, g.type, g.queries, dq);
  }
}

/// The plan for a key that needs at most `workspace_bytes`, a function of the key; null where cuDNN has none. Made at
/// the first call, which takes up to seconds, and kept. A thread has its own, so that nothing is locked.
const CudnnPlan* PlanFor(cudnnHandle_t handle, const PlanKey& key, int64_t workspace_bytes) {
  thread_local std::map<PlanKey, std::optional<CudnnPlan>> plans;
  const auto [place, is_new] = plans.try_emplace(key);
  if (is_new) {
    try {
      AttentionGraph g(key);
      if (key.backward)
        DescribeBackward(g, key.deterministic);
      else
        DescribeForward(g);
      place->second = g.graph.Plan(handle, workspace_bytes, key.deterministic);
    } catch (const CudnnError&) {
      // This cuDNN does not know the pattern for this shape, or not on this GPU: there are our own kernels.
    }
  }
  return place->second ? &*place->second : nullptr;
}

PlanKey KeyOf(const AttentionShape& part, const AttentionShape& all, DType dtype, bool backward, bool deterministic) {
  PlanKey key{part, all.heads, all.kv_heads, dtype, backward, deterministic, 0};
  CheckCuda(cudaGetDevice(&key.device), "cudaGetDevice");
  return key;
}

/// Whether cuDNN is asked at all.
bool MayFit(const AttentionShape& s, DType dtype, const AttentionDropout& dropout,
            std::initializer_list<const void*> tensors) {
  for (const void* data : tensors)
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  return dropout.p == 0 && AsksCudnn(s, dtype);
}

/// Element `index` of a tensor of 16-bit numbers.
void* At(const Tensor& t, int64_t index) { return static_cast<uint16_t*>(t.data) + index; }

/// The scalars of the graphs.
struct Scalars {
  explicit Scalars(const AttentionShape& s) : scale(1.0f / std::sqrt(static_cast<float>(s.head_size))) {}
  float scale, minus_infinity = -std::numeric_limits<float>::infinity(), one = 1;
};

/// Of a backward pass: `part`, whose first sample and key head are these.
struct PartOfPass {
  AttentionShape part;
  int64_t sample, kv_head;
};

/// All parts, none larger than `most` says.
std::vector<PartOfPass> PartsOf(const AttentionShape& s, const CudnnAttentionPart& most) {
  std::vector<PartOfPass> parts;
  for (int64_t sample = 0; sample < s.batch; sample += most.samples)
    for (int64_t kv = 0; kv < s.kv_heads; kv += most.kv_heads) {
      AttentionShape part = s;
      part.batch = std::min(most.samples, s.batch - sample);
      part.kv_heads = std::min(most.kv_heads, s.kv_heads - kv);
      part.heads = part.kv_heads * (s.heads / s.kv_heads);
      parts.push_back({part, sample, kv});
    }
  return parts;
}

}  // namespace

bool CudnnAttentionForward(const KernelContext& context, const AttentionShape& s, Tensor qkv,
                           const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp) {
  if (!MayFit(s, qkv.dtype, dropout, {qkv.data, out.data, log_sum_exp.data})) return false;
  const int64_t bytes = AttentionWorkspaceBytes(s, qkv.dtype, false);
  char* workspace = Workspace<char>(context, "AttentionForward", bytes);
  const cudnnHandle_t handle = CudnnHandle(context.stream);
  const CudnnPlan* plan = PlanFor(handle, KeyOf(s, s, qkv.dtype, false, true), bytes);
  if (!plan) return false;
  Scalars scalars(s);
  plan->Run(handle,
            {qkv.data, At(qkv, s.heads * s.head_size), At(qkv, (s.heads + s.kv_heads) * s.head_size), &scalars.scale,
             &scalars.minus_infinity, log_sum_exp.data, out.data},
            workspace);
  return true;
}

bool CudnnAttentionBackward(const KernelContext& context, const AttentionShape& s, Tensor dout, Tensor qkv, Tensor out,
                            Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv) {
  if (!MayFit(s, qkv.dtype, dropout, {qkv.data, out.data, dout.data, dqkv.data, log_sum_exp.data})) return false;
  const CudnnAttentionPart most = CudnnAttentionPartOf(s, context.deterministic);
  if (most.samples == 0) return false;
  const bool in_parts = most.samples < s.batch || most.kv_heads < s.kv_heads;
  if (in_parts && s.tokens % 4 != 0) return false;  // their rows of log_sum_exp would not be aligned to 16 bytes
  char* workspace = Workspace<char>(context, "AttentionBackward", AttentionWorkspaceBytes(s, qkv.dtype, true));
  const cudnnHandle_t handle = CudnnHandle(context.stream);
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  struct Run {
    PartOfPass at;
    const CudnnPlan* plan;
    int64_t delta_bytes, sum_bytes;
  };
  std::vector<Run> runs;  // all or none: nothing is enqueued before every part has its plan
  for (const PartOfPass& at : PartsOf(s, most)) {
    const int64_t rows = at.part.batch * at.part.heads * s.tokens;
    const int64_t delta_bytes = aligned(rows * 4),
                  sum_bytes = context.deterministic ? 0 : aligned(rows * s.head_size * 4);
    const CudnnPlan* plan = PlanFor(handle, KeyOf(at.part, s, qkv.dtype, true, context.deterministic),
                                    most.bytes - delta_bytes - sum_bytes);
    if (!plan) return false;
    runs.push_back({at, plan, delta_bytes, sum_bytes});
  }
  Scalars scalars(s);
  for (const Run& run : runs) {
    const int64_t head = run.at.kv_head * (s.heads / s.kv_heads), token = run.at.sample * s.tokens;
    const int64_t slots = s.heads + 2 * s.kv_heads;
    const int64_t q = (token * slots + head) * s.head_size;
    const int64_t k = (token * slots + s.heads + run.at.kv_head) * s.head_size, v = k + s.kv_heads * s.head_size;
    const int64_t o = (token * s.heads + head) * s.head_size;
    float* lse = static_cast<float*>(log_sum_exp.data) + (run.at.sample * s.heads + head) * s.tokens;
    char *delta = workspace, *sum = delta + run.delta_bytes, *rest = sum + run.sum_bytes;
    std::vector<void*> addresses{
        At(qkv, q),   At(qkv, k), At(qkv, v),  At(out, o),  At(dout, o), lse, &scalars.scale, &scalars.minus_infinity,
        &scalars.one, delta,      At(dqkv, q), At(dqkv, k), At(dqkv, v)};
    if (!context.deterministic) addresses.push_back(sum);
    run.plan->Run(handle, addresses, rest);
  }
  return true;
}

}  // namespace ds::cuda
