// Reductions whose order is fixed: the same bits whatever the thread count.
#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// Sum of squares in fp64 of an f32 (or f64) tensor: in blocks of 65,536 elements; in a block element i goes to lane
/// i mod 16 and lanes are summed 0..15; then blocks are summed in order. Infinities and NaN propagate.
/// For tensors of the CPU.
double SumOfSquares(const KernelContext& context, Tensor x);

/// x, f32 or f64, may be empty; sum: [1] f64.
struct SquareTerm {
  Tensor x, sum;
};

/// sum[0] += that sum of x, one term after another: terms may share a sum. On any device: all tensors are on one. A GPU
/// computes all terms together, and gives the CPU's bits. No x may overlap a sum.
void AddSumsOfSquares(const KernelContext& context, std::span<const SquareTerm> terms);

/// sum[0] = the sum of x in fp64. x: f32 or f64; sum: [1] f64. In the order of elements on the CPU; on a GPU in another
/// fixed order: element i goes to part i mod 1024, and parts are added in a tree. So devices differ by rounding in
/// fp64.
void SumInto(const KernelContext& context, Tensor x, Tensor sum);

/// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ...: fp32 sums for f32, bf16 and f16 (rounded once at the
/// end), fp64 for f64. out may alias parts[0]. The order is the order of ranks: every communicator reduces with it.
void SumInOrder(const KernelContext& context, std::span<const Tensor> parts, Tensor out);

}  // namespace ds
