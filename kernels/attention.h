// Causal scaled dot-product attention with grouped key and value heads, computed in blocks of query rows (Dao et al.
// 2022): the T x T scores are never stored, but by cuDNN's deterministic backward, a part at a time (workspace.h).
#pragma once

#include "kernels/context.h"
#include "kernels/random.h"
#include "kernels/tensor.h"

namespace ds {

struct AttentionShape {
  int64_t batch = 0, tokens = 0;                   ///< B, T
  int64_t heads = 0, kv_heads = 0, head_size = 0;  ///< heads is a multiple of kv_heads
};

struct AttentionDropout {
  float p = 0;  ///< dropout on the attention probabilities
  RandomStream stream;
  uint64_t first_sample = 0;  ///< global index of sample 0: element (b, h, i, j) has index ((b*H + h)*T + i)*T + j
};

/// On GPUs: head sizes up to 256, context.workspace of AttentionWorkspaceBytes (workspace.h).
///
/// qkv: [B, T, heads + 2 kv_heads, head_size]: queries, then keys, then values of a token.
/// out: [B, T, heads * head_size]; log_sum_exp: [B, heads, T] f32 (f64 for f64), of the scaled scores. Scores are
/// scaled by 1/sqrt(head_size); token i sees tokens 0..i.
///
/// first_key: absent, or [B, T] i32: token i sees tokens first_key[i]..i alone, such as those of its document in a
/// sample that several were packed into. Along the tokens of a sample it never falls, and first_key[i] <= i: the CPU
/// throws std::invalid_argument where it does not hold, a GPU, which does not look, writes other numbers. Keys that no
/// query of a block sees cost nothing. On the CPU a token's results are, bit for bit, those of its document (the tokens
/// of one first key) alone, but for dropout masks, which go by the place in the sample. GPUs use kernels of our own
/// then, never cuDNN.
void AttentionForward(const KernelContext& context, const AttentionShape& shape, Tensor qkv,
                      const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp, Tensor first_key = {});

/// dqkv: like qkv, every element written. dout, out, first_key: as in the forward pass.
void AttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv, Tensor out,
                       Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv, Tensor first_key = {});

/// Bytes of thread-private memory that either call allocates, at most.
int64_t AttentionScratchBytes(const AttentionShape& shape, DType dtype, int threads);

}  // namespace ds
