// Token and learned position embeddings.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// y[b, t] = tokens_table[ids[b, t]] (+ positions_table[t] when given). ids: [B, T] i32 in [0, V); y: [B, T, D].
///
/// Ids outside the table are refused on the CPU. On a GPU, where nobody looks at them first, such a token becomes a row
/// of NaN, which the step's norm finds, and has no part in EmbeddingBackwardTokens.
void EmbeddingForward(const KernelContext& context, Tensor ids, Tensor tokens_table, Tensor positions_table, Tensor y);

/// dtable[V, D] f32 (f64 for f64): rows of dy summed by id, in token order. accumulate: added to what is there,
/// otherwise rows that no token names become zero.
void EmbeddingBackwardTokens(const KernelContext& context, Tensor ids, Tensor dy, Tensor dtable, bool accumulate);

/// dtable[positions, D] f32 (f64 for f64): dy summed over the batch, in sample order; rows >= T become zero unless
/// accumulate.
void EmbeddingBackwardPositions(const KernelContext& context, Tensor dy, Tensor dtable, bool accumulate);

}  // namespace ds
