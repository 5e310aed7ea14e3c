// The tokens of a batch in the order of their ids, those of one id in the order of the batch. Internal to the GPU
// kernels.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace ds::cuda {

/// Arrays in the context's workspace, valid as long as it.
struct TokenOrder {
  const int32_t* ids;     ///< ascending; what was outside [0, vocabulary) comes last, as `vocabulary`
  const int32_t* tokens;  ///< the place in the batch of each
};

/// Sorts n ids. Workspace: EmbeddingBackwardWorkspaceBytes(n).
TokenOrder SortTokens(const KernelContext& context, const char* kernel, const int32_t* ids, int64_t n,
                      int32_t vocabulary);

}  // namespace ds::cuda
