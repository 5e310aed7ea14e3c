// A linear layer whose three products are of 8-bit numbers (fp8.h): y = x W^T + b and its gradients. Weights,
// activations and gradients stay bf16 in memory; each product scales and rounds its two operands anew.
//
// Shapes for which Fp8Multiplies says no are not for these functions: such layers multiply in bf16.
// On a GPU the quantised operands are in the workspace (Fp8LinearWorkspaceBytes), behind the product's own, and outputs
// and bias start at multiples of 16 bytes. On the CPU the same numbers are multiplied by the bf16 product, so a job on
// CPUs is the reference of one on GPUs, not a fast one.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// Whether a layer [out, in] multiplies `rows` rows in 8 bits: all three products want multiples of 16. A matter of
/// shapes alone, so that plan, price and kernels agree.
constexpr bool Fp8Multiplies(int64_t rows, int64_t in, int64_t out) {
  return rows > 0 && in > 0 && out > 0 && rows % 16 == 0 && in % 16 == 0 && out % 16 == 0;
}

/// y = x W^T + bias, x and W as f8_e4m3. x: [N, K], weight: [M, K], bias: [M] or empty, y: [N, M], all bf16.
void Fp8LinearForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, Tensor y);

/// dx = dy W, dy as f8_e5m2, W as f8_e4m3. dy: [N, M], weight: [M, K], dx: [N, K], all bf16.
void Fp8LinearBackwardInput(const KernelContext& context, Tensor dy, Tensor weight, Tensor dx);

/// dweight = dy^T x, dy as f8_e5m2, x as f8_e4m3; added to what is there where accumulating. dy: [N, M], x: [N, K],
/// both bf16, dweight: [M, K] f32.
void Fp8LinearBackwardWeight(const KernelContext& context, Tensor dy, Tensor x, Tensor dweight, bool accumulate);

}  // namespace ds
