// How far attention computed in a dtype may be from fp64: bounds for every element of the results, from the sizes of
// the terms that are summed and rounded.
#pragma once

#include <functional>
#include <vector>

#include "kernels/attention.h"
#include "test/unit/kernels/support.h"

namespace ds::test {

/// Bounds on the errors of out [B, T, heads * head_size], log_sum_exp [B, heads, T] and dqkv
/// [B, T, heads + 2 kv_heads, head_size].
struct AttentionBounds {
  Values out, log_sum_exp, dqkv;
};

/// For a computation in blocks whose inputs have dtype `dtype`, that rounds probabilities and gradients of scores to it
/// and sums in fp32 (f64 for f64). factor(index): of dropout, for a probability's index counted from sample 0.
/// dqkv: the gradient in fp64. each_head_rounded: gradients of keys and values were rounded before they were summed
/// over the heads of a group, too. first_key: [B * T], of the queries; empty: they see all keys up to their own.
AttentionBounds BoundsOf(const AttentionShape& shape, DType dtype, const Values& qkv, const Values& dout,
                         const Values& dqkv, const std::function<double(uint64_t)>& factor, bool each_head_rounded,
                         const std::vector<int32_t>& first_key = {});

}  // namespace ds::test
