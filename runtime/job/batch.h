// DeepSpeed's rule for batch sizes: train_batch_size = micro-batch size x accumulation x data-parallel ranks.
#pragma once

#include "runtime/job/deepspeed.h"
#include "runtime/job/problems.h"

namespace ds {

/// Any two of the three give the third; train_batch_size or the micro-batch size alone means accumulation 1. Fills
/// draft.spec.batch, or adds a problem with the arithmetic.
void ResolveBatch(const DeepSpeedDraft& draft, int64_t ranks, Problems& problems);

}  // namespace ds
