// Dropout with a mask that is computed, not stored.
#pragma once

#include "kernels/context.h"
#include "kernels/random.h"
#include "kernels/tensor.h"

namespace ds {

/// y[i] = x[i] * keep(stream, first + i) / (1 - p) (+ residual[i] when given). x, residual, y: one dtype, same shape;
/// any may alias y. The backward pass is the same call on the gradient. p in [0, 1).
/// The mask of element i is 1 when the i-th 32-bit number of the stream is at least p * 2^32.
void Dropout(const KernelContext& context, RandomStream stream, uint64_t first, float p, Tensor x, Tensor residual,
             Tensor y);

}  // namespace ds
