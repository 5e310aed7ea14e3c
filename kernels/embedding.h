// Token and learned position embeddings.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// y[b, t] = tokens_table[ids[b, t]] (+ positions_table[t] when given). ids: [B, T] i32 in [0, V); y: [B, T, D].
void EmbeddingForward(const KernelContext& context, Tensor ids, Tensor tokens_table, Tensor positions_table, Tensor y);

/// dtable[V, D] f32 (f64 for f64): rows of dy summed by id, in token order. accumulate: added to what is there,
/// otherwise rows that no token names become zero.
void EmbeddingBackwardTokens(const KernelContext& context, Tensor ids, Tensor dy, Tensor dtable, bool accumulate);

/// dtable[positions, D] f32 (f64 for f64): dy summed over the batch, in sample order; rows >= T become zero unless
/// accumulate.
void EmbeddingBackwardPositions(const KernelContext& context, Tensor dy, Tensor dtable, bool accumulate);

}  // namespace ds
