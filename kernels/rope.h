// Rotary position embedding (Su et al. 2021) in the "rotate half" layout of LLaMA: of a head's vector, element i and
// element i + size/2 turn by the angle position * theta^(-2i/size).
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// cos, sin: [positions, head_size / 2] f32 (f64 allowed), filled for positions 0, 1, ...
void RopeTable(double theta, Tensor cos, Tensor sin);

/// Turns the first `heads` heads of every token in place; heads after them (the values) are left alone.
/// x: [B, T, total_heads, head_size]. inverse: turns back, which is the backward pass.
void Rope(const KernelContext& context, Tensor x, int64_t heads, Tensor cos, Tensor sin, bool inverse);

}  // namespace ds
