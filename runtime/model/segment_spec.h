// What each segment of a model is, as data: parameters, tensors it keeps between its passes, scratch and work.
//
// A segment is half a transformer block (attention; MLP), the embedding, or the head with the loss. Its implementation
// (runtime/segments) reads and writes exactly the tensors named here, in this order.
//
//   embedding  y = dropout(wte[ids] + wpe[t])
//   attention  y = x + dropout(proj(attention(rope(qkv(norm(x))))))
//   mlp        y = x + dropout(down(activation(up(norm(x)))))
//   head       losses = cross_entropy(norm(x) * lm_head^T, targets);   lm_head = wte when tied
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/matmul_choice.h"
#include "kernels/tensor.h"
#include "runtime/job/job_spec.h"

namespace ds {

enum class SegmentKind { embedding, attention, mlp, head };
enum class InitKind { normal, ones, zeros };
enum class Pass { forward, recompute, backward_input, backward_weight };

struct ParamSpec {
  std::string name;   ///< global and stable: "layers.3.attention.qkv.weight"; the name in checkpoints
  Shape shape;        ///< linear weights are [out, in], as in PyTorch
  bool decay = true;  ///< weight decay applies (matrices: yes; norms and biases: no)
  InitKind init = InitKind::normal;
  double stddev = 0.02;
  int64_t real_rows = 0;  ///< rows beyond these are padding of the vocabulary: zero, never exported. 0: all are real
};

struct TensorSpec {
  std::string name;
  DType dtype;
  Shape shape;
};

/// A matrix product of a pass, on the whole micro-batch. A weight gradient that is added to what is there accumulates:
/// its key does not say so.
struct ProductSpec {
  Pass pass = Pass::forward;
  MatMulKey key;
  /// What a GPU may compute in the same kernel instead of key.epilogue; none: nothing.
  MatMulEpilogue fused = MatMulEpilogue::none;
  /// Whether a GPU may add the residual stream in the same kernel (without active dropout): it then accumulates.
  bool adds = false;
};

/// Causal attention, of which the forward has two products and the backward five, one of them the scores computed
/// again.
struct AttentionWork {
  int64_t tokens = 0, head_size = 0;
  double product_flops = 0;  ///< of one product, over the half of the scores that is read; 0: the segment has none
};

/// Samples and tokens a sample of one micro-batch on one rank.
struct MicroBatchShape {
  int64_t samples = 0, tokens = 0;
};

struct SegmentSpec {
  SegmentKind kind = SegmentKind::embedding;
  int64_t layer = -1;  ///< of attention and mlp
  std::string name;    ///< "embedding", "layer3.attention", "layer3.mlp", "head"
  std::vector<ParamSpec> params;
  bool tied = false;             ///< head: its matrix is the embedding's token table
  bool reset_attention = false;  ///< attention: stays within documents; its passes read SegmentIo::first_key
  bool fp8 = false;  ///< attention, mlp: linear layers that Fp8Multiplies (kernels/fp8_linear.h) multiply in 8 bits

  std::vector<TensorSpec> output;   ///< y [N, D] of the compute dtype; the head: none
  std::vector<TensorSpec> saved;    ///< written by forward and recompute, read by the backward passes
  std::vector<TensorSpec> carried;  ///< written by backward_input, read by backward_weight
  int64_t forward_scratch = 0, backward_input_scratch = 0, backward_weight_scratch = 0;  ///< bytes
  int64_t gpu_workspace = 0;  ///< bytes of KernelContext::workspace that its passes need on a GPU
  int64_t gpu_tables = 0;     ///< bytes that it keeps on a GPU and shares with all segments that have such
  double forward_flops = 0, backward_input_flops = 0, backward_weight_flops = 0;
  double recompute_flops = 0;         ///< of the forward without its last projection
  std::vector<ProductSpec> products;  ///< of all passes; the FLOPs above count them, and attention's
  AttentionWork attention;
};

/// Bytes of `tensors` laid one after another, each (and the end) aligned to 64 bytes; offsets, when given, receives
/// each one's start.
int64_t LayOut(const std::vector<TensorSpec>& tensors, std::vector<int64_t>* offsets = nullptr);

/// The segments of a model in order: embedding, (attention, mlp) x layers, head. `compute` is the dtype of activations:
/// f32, bf16, f16, or f64 for tests. Describes the CPU backend. reset_attention: data.reset_attention. The work stated
/// is then that of samples of one document; with more of them it is less. recompute: training.recompute, which decides
/// whether an MLP saves the output of its activation. fp8: training.fp8; throws std::invalid_argument where compute is
/// not bf16.
///
/// saved, carried and scratch, with N = samples * tokens, statistics in f32 (f64 when compute is f64):
///   embedding  saved: -                    carried: -   backward_weight scratch: dropped dy [N, D] when dropout > 0
///   attention  saved: normed [N, D], mean [N] (LayerNorm only), rstd [N], qkv [N, (H + 2 KV) hd], attended [N, H hd],
///                     log_sum_exp [B, H, T]
///              carried: dqkv [N, (H + 2 KV) hd], dnormed [N, D], dropped_dy [N, D] when dropout > 0
///              forward scratch: projection [N, D]; backward_input scratch: dattended [N, H hd]
///   mlp        saved: normed [N, D], mean [N] (LayerNorm only), rstd [N], pre [N, F] ([N, 2F] gate and up for SwiGLU),
///                     activated [N, F] (SwiGLU: with RecomputeMode::none alone)
///              carried: dpre like pre, dnormed [N, D], dropped_dy [N, D] when dropout > 0
///              forward scratch: activated [N, F] where it is not saved, projection [N, D]; backward_input scratch:
///              dactivated [N, F] (SwiGLU only); backward_weight scratch: activated [N, F] where it is not saved
///   head       saved: normed [N, D], mean [N] (LayerNorm only), rstd [N], dlogits [N, Vp]
///              carried: dnormed [N, D]
///              forward scratch: logits [min(N, kHeadRows), Vp] f32 (f64), losses [N] f32 (f64)
/// Every scratch tensor is aligned to 64 bytes, in the order named. Recompute is given no scratch.
///
/// An activation that is not saved is computed again from pre by the kernel that computed it in the forward, to the
/// same bits: no matrix product, but a read of pre and a write of the activation. GELU's is saved in every mode: GPUs
/// compute it within the product before it, from sums that are not rounded yet (kernels/linear.h). With
/// RecomputeMode::full SwiGLU runs as often either way, and memory that backward_input does not hold serves others.
///
/// Parameters, in this order. A norm has a bias when it is a LayerNorm, whatever model.bias says (the kernel reads
/// one); a linear layer has one when model.bias (qkv: model.qkv_bias). Matrices: normal(0, 0.02), proj and down
/// normal(0, 0.02 / sqrt(2 layers)) as in GPT-2; norm weights: ones; biases: zeros.
///   embedding  embedding.tokens.weight [Vp, D], embedding.positions.weight [max_positions, D] (learned positions)
///   attention  layers.L.attention. norm.weight, norm.bias, qkv.weight [(H + 2 KV) hd, D] (rows: queries, keys,
///   values),
///              qkv.bias, proj.weight [D, H hd], proj.bias
///   mlp        layers.L.mlp. norm.weight, norm.bias, up.weight [F, D] (SwiGLU: gate_up.weight [2F, D], gate first),
///              up.bias (gate_up.bias), down.weight [D, F], down.bias
///   head       head.norm.weight, head.norm.bias, head.weight [Vp, D] (untied)
std::vector<SegmentSpec> BuildSegments(const ModelConfig& model, DType compute, MicroBatchShape shape,
                                       bool reset_attention = false, RecomputeMode recompute = RecomputeMode::none,
                                       bool fp8 = false);

/// Rows of logits that the CPU head computes at a time.
inline constexpr int64_t kHeadRows = 256;

}  // namespace ds
