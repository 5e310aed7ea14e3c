// Device memory that a GPU's executors keep beside the plan's buffers (runtime/exec/gpu_executor.h lays it out so).
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace ds {

inline constexpr int64_t kExecutorAlignment = 256;  ///< bytes, of each tensor

/// Whether micro-batches have first keys (data.reset_attention).
bool ReadsFirstKeys(const ModelLayout& layout);

/// Of one executor: of every micro-batch its tokens, targets and, where it has some, first keys (i32); in doubles a
/// loss of each, this rank's numbers of Norm and those of all ranks; the gradients' scale and whether the step is
/// skipped.
int64_t ExecutorBytes(const ModelLayout& layout, const PlanOptions& options);

/// What segments keep on a GPU for as long as they live: one set of tables.
int64_t TableBytes(const ModelLayout& layout);

/// A job has two: of the training step, and of the forward pass that validates. A third, of what a step left to the
/// next one, takes no micro-batches.
inline constexpr int kExecutors = 2;

}  // namespace ds
