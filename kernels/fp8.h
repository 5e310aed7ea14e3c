// Matrix products of 8-bit floating-point numbers, and how tensors become such.
//
// Two formats: f8_e4m3 (largest value 448, a step of 2^-3 of a number) for what is fed forward, and f8_e5m2 (57344,
// 2^-2) for gradients, whose elements spread over more powers of two than E4M3 has. A tensor is scaled as it is now, by
// its own largest element ("current scaling"): no history, so a step is a function of its inputs alone.
#pragma once

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

/// codes = x * scale rounded to nearest even, with scale = largest finite value of the format / max |x| (1 where x is
/// zero; at most 2^126), and inverse_scale = 1 / scale. Where an element of x is not finite, inverse_scale and all
/// codes are NaN, and so is every product with them. The same bits on every device.
///
/// x: bf16 [R, C], R and C multiples of 16. codes: f8_e4m3 or f8_e5m2, [R, C], or transposed [C, R], from a multiple of
/// 16 bytes on. inverse_scale: f32 [1]. largest: i32 [1], scratch: the bits of max |x| as bf16.
void QuantizeFp8(const KernelContext& context, Tensor x, bool transpose, Tensor codes, Tensor inverse_scale,
                 Tensor largest);

/// c[M, N] = a[M, K] b[N, K]^T * a_inverse * b_inverse (+ bias) (+ c where accumulating), rounded once.
/// a: f8_e4m3 or f8_e5m2; b: f8_e4m3. M, N and K are multiples of 16. Inverses: f32 [1], of QuantizeFp8. bias: [N] of
/// c's dtype or empty, with bf16 alone and not where accumulating. c: bf16, or f32. Sums are fp32; on a GPU with a of
/// f8_e4m3 the tensor cores keep fewer bits of them (CUBLASLT_MATMUL_DESC_FAST_ACCUM), with f8_e5m2 they do not.
///
/// On a GPU c, bias, a and b start at multiples of 16 bytes. Throws std::runtime_error where the GPU has no such
/// product (compute capability below 8.9). Workspace: MatMulWorkspaceBytes().
void MatMulFp8(const KernelContext& context, Tensor a, Tensor a_inverse, Tensor b, Tensor b_inverse, Tensor bias,
               Tensor c, bool accumulate);

}  // namespace ds
