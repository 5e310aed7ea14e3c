// The ways in which attention is computed on GPUs; ds::cuda::AttentionForward and AttentionBackward choose among them.
// Arguments and results as in attention.h; all have the same type. Internal to kernels/ and its tests.
#pragma once

#include "kernels/attention.h"

namespace ds::cuda {

/// By kernels of our own (cuda_attention.h): every dtype, head sizes up to 256. Throws std::invalid_argument for larger
/// ones. Same bits in every run.
decltype(ds::AttentionForward) OwnAttentionForward;
decltype(ds::AttentionBackward) OwnAttentionBackward;

}  // namespace ds::cuda
