// Root-mean-square normalisation (Zhang, Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * w.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// x, y: [N, D] of one dtype; weight: [D] of that dtype; rstd: [N] f32 (f64 when x is f64), written.
void RmsNormForward(const KernelContext& context, Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd);

/// dx = d(loss)/dx (+ residual). residual may be empty or alias dx.
void RmsNormBackwardInput(const KernelContext& context, Tensor dy, Tensor x, Tensor weight, Tensor rstd,
                          Tensor residual, Tensor dx);

/// dweight: [D] f32 (f64 for f64), summed over rows in row order in fixed blocks; added when accumulate.
void RmsNormBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor rstd, Tensor dweight,
                           bool accumulate);

}  // namespace ds
