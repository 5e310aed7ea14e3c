// Matrix product whose rows do not know of each other ("batch-invariant"): for generation, where a token computed alone
// must equal the same token computed within a prompt. MatMul promises that only for rows of one call.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// y[M, N] = x[M, K] * w[N, K]^T (+ bias[N]): a linear layer with its weight as stored. x and w: one dtype of {f64,
/// f32, bf16, f16}; bias: that dtype or f32 (f64 for f64), or absent; y: likewise one of the two. Sums are in fp32
/// (fp64 for f64): product i of an element is added to lane i mod 8 (4 for f64), then the lanes in order, whatever M, N
/// and the thread count. Made for few rows, where it reads w once; with many it takes about twice MatMul's time. Throws
/// std::invalid_argument on shapes or dtypes that do not fit.
void RowMatMul(const KernelContext& context, Tensor x, Tensor w, Tensor bias, Tensor y);

}  // namespace ds
