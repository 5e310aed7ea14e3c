// The ways in which attention is computed on GPUs; ds::cuda::AttentionForward and AttentionBackward choose among them.
// Arguments and results as in attention.h; all have the same type. Internal to kernels/ and its tests.
#pragma once

#include "kernels/attention.h"

namespace ds::cuda {

/// By kernels of our own (cuda_attention.h): every dtype, head sizes up to 256. Throws std::invalid_argument for larger
/// ones. Same bits in every run.
decltype(ds::AttentionForward) OwnAttentionForward;
decltype(ds::AttentionBackward) OwnAttentionBackward;

/// By cuDNN's fused kernels: bf16 and f16, no dropout, head sizes of 64 to 256 in multiples of 8. False, and nothing
/// done, where cuDNN does not know the shape.
bool CudnnAttentionForward(const KernelContext& context, const AttentionShape& shape, Tensor qkv,
                           const AttentionDropout& dropout, Tensor out, Tensor log_sum_exp);
bool CudnnAttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv,
                            Tensor out, Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv);

/// By kernels of our own for Hopper: bf16 and f16, no dropout, heads of 64, tensors that start at multiples of 16
/// bytes. Same bits in every run. False, and nothing done, for others, on other GPUs, and in programs without code for
/// sm_90a.
bool WgmmaAttentionBackward(const KernelContext& context, const AttentionShape& shape, Tensor dout, Tensor qkv,
                            Tensor out, Tensor log_sum_exp, const AttentionDropout& dropout, Tensor dqkv);

}  // namespace ds::cuda
