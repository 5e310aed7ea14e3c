// Matrix products of our own on GPUs, for what cuBLASLt has no algorithm for: correct, not fast. Internal to the GPU
// kernels.
#pragma once

#include "kernels/context.h"
#include "kernels/cublaslt.h"
#include "kernels/tensor.h"

namespace ds::cuda {

/// Computes p, whose epilogue is `none`, for every dtype, shape and address. Sums over k in order, in fp32 (f64 for
/// f64).
void MultiplyPlainly(const KernelContext& context, const LtProduct& p);

/// c[i, j] += bias[j]; c: [m, n] of a floating dtype, bias: [n] of its own.
void AddBiasToRows(const KernelContext& context, Tensor bias, Tensor c);

}  // namespace ds::cuda
