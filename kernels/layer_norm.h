// Layer normalisation over the last dimension (Ba, Kiros, Hinton 2016): y = (x - mean) / sqrt(var + eps) * w + b.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// x, y: [N, D] of one dtype; weight, bias: [D] of that dtype; mean, rstd: [N] f32 (f64 when x is f64), written.
void LayerNormForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, double eps, Tensor y,
                      Tensor mean, Tensor rstd);

/// dx = d(loss)/dx (+ residual). residual may be empty or alias dx.
void LayerNormBackwardInput(const KernelContext& context, Tensor dy, Tensor x, Tensor weight, Tensor mean, Tensor rstd,
                            Tensor residual, Tensor dx);

/// dweight, dbias: [D] f32 (f64 for f64), summed over rows in row order in fixed blocks; added when accumulate.
void LayerNormBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                             Tensor dweight, Tensor dbias, bool accumulate);

}  // namespace ds
