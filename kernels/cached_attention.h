// Causal attention of new tokens over a cache of keys and values: what text generation computes, for a prompt at once
// and then for one token at a time.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

struct CachedAttentionShape {
  int64_t rows = 0;                                ///< new tokens
  int64_t first = 0;                               ///< position of the first: so many tokens are cached before it
  int64_t capacity = 0;                            ///< positions of the cache; at least first + rows
  int64_t heads = 0, kv_heads = 0, head_size = 0;  ///< heads is a multiple of kv_heads
};

/// qkv: [rows, heads + 2 kv_heads, head_size]: queries, then keys, then values of a token, as AttentionForward reads
/// them. keys, values: the cache, [kv_heads, capacity, head_size] of the same dtype; positions [0, first) are read, the
/// new tokens' are written to [first, first + rows), others are left alone. out: [rows, heads * head_size]. Scores are
/// scaled by 1/sqrt(head_size); the token at position i sees positions 0..i.
///
/// A row's result has the same bits whether its tokens came one by one, all at once or in pieces.
void CachedAttention(const KernelContext& context, const CachedAttentionShape& shape, Tensor qkv, Tensor keys,
                     Tensor values, Tensor out);

}  // namespace ds
