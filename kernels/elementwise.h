// Small elementwise kernels.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

void Fill(const KernelContext& context, Tensor x, double value);
/// Any floating dtype to any other, rounding to nearest even. Same dtype: a copy.
void Cast(const KernelContext& context, Tensor from, Tensor to);
/// y = a + b, computed in fp32 (f64 for f64) and rounded once; y may alias either.
void Add(const KernelContext& context, Tensor a, Tensor b, Tensor y);
/// x *= factor. f32, f64.
void Scale(const KernelContext& context, Tensor x, double factor);
/// dbias[D] f32 (f64 for f64) = sum over rows of dy[N, D], in row order in fixed blocks; added when accumulate.
void BiasBackward(const KernelContext& context, Tensor dy, Tensor dbias, bool accumulate);

}  // namespace ds
