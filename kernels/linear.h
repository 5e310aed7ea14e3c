// Linear layers fused with what follows them, a GELU or the sum with the residual stream. On the CPU, and where the GPU
// library has no fused version, the separate kernels one after the other.
//
// A GPU computes them in one kernel when the dtype is bf16 or f16 and all tensors start at multiples of 16 bytes; with
// GELU also only where MayFuseGelu says so. All of that is a matter of shapes and of where the arena puts tensors; an
// arena that aligns them gives one version throughout a run. Workspace: MatMulWorkspaceBytes().
#pragma once

#include "kernels/activation.h"
#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// Whether a GPU may compute the layers with GELU below in one kernel, for some places of their tensors. The library's
/// GELU is the one with tanh, which it approximates by more than fp32's rounding; what it saves has rows of a multiple
/// of 8. Otherwise they are MatMul and the activation, one after the other, and so are pre's bits.
constexpr bool MayFuseGelu(GeluKind kind, DType dtype, int64_t features) {
  return kind == GeluKind::tanh && (dtype == DType::bf16 || dtype == DType::f16) && features % 8 == 0;
}

/// pre = x W^T + bias, y = gelu(pre). x: [N, K], weight: [F, K], bias: [F] or empty, pre and y: [N, F], all of one
/// floating dtype. pre is kept for the backward; no two of the tensors may share memory.
/// Fused, y is the GELU of pre before it was rounded; otherwise of pre as stored. pre may differ from MatMul's in the
/// order of its sums: a pass that computes it anew calls this again.
void LinearGeluForward(const KernelContext& context, GeluKind kind, Tensor x, Tensor weight, Tensor bias, Tensor pre,
                       Tensor y);

/// dpre = (dy W) * gelu'(pre), for the layer behind the GELU: dy: [N, H], weight: [H, F], pre and dpre: [N, F], all of
/// one floating dtype; no two may share memory. The bias gradient of the layer before it is BiasBackward(dpre): the
/// library's own would be rounded to 16 bits.
void LinearGeluBackwardInput(const KernelContext& context, GeluKind kind, Tensor dy, Tensor weight, Tensor pre,
                             Tensor dpre);

/// y = residual + x W^T + bias. x: [N, K], weight: [F, K], bias: [F] or empty, residual and y: [N, F], all of one
/// floating dtype; y may share memory with none of the others. Fused, the sum is rounded once; otherwise x W^T + bias
/// is rounded before the residual is added.
void LinearAddForward(const KernelContext& context, Tensor x, Tensor weight, Tensor bias, Tensor residual, Tensor y);

}  // namespace ds
