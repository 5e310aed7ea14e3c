// Activations of the MLP.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

enum class GeluKind { exact /* 0.5 x (1 + erf(x / sqrt 2)) */, tanh /* GPT-2's approximation */ };

/// y = gelu(x), elementwise; y may alias x.
void GeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor y);
/// dx = dy * gelu'(x); dx may alias dy.
void GeluBackward(const KernelContext& context, GeluKind kind, Tensor dy, Tensor x, Tensor dx);

/// SwiGLU (Shazeer 2020). gate_up: [N, 2F], gate first; y: [N, F] = silu(gate) * up.
void SwigluForward(const KernelContext& context, Tensor gate_up, Tensor y);
/// dgate_up: [N, 2F]; may alias gate_up.
void SwigluBackward(const KernelContext& context, Tensor dy, Tensor gate_up, Tensor dgate_up);

}  // namespace ds
