#include "runtime/plan/executor_memory.h"

#include <algorithm>

namespace ds {

bool ReadsFirstKeys(const ModelLayout& layout) {
  return std::any_of(layout.segments.begin(), layout.segments.end(),
                     [](const SegmentSpec& segment) { return segment.reset_attention; });
}

int64_t ExecutorBytes(const ModelLayout& layout, const PlanOptions& options) {
  if (layout.segments.empty()) return 0;
  auto aligned = [](int64_t bytes) {
    return (bytes + kExecutorAlignment - 1) / kExecutorAlignment * kExecutorAlignment;
  };
  const int64_t tokens = layout.segments.front().output.front().shape[0];  // of a micro-batch
  const int64_t facts = static_cast<int64_t>(layout.units.size()) + kNormExtras;
  const int64_t micro_batches = MicroBatchesOf(options);
  return micro_batches * (ReadsFirstKeys(layout) ? 3 : 2) * aligned(tokens * 4) + aligned(micro_batches * 8) +
         aligned(facts * 8) + aligned(options.world() * facts * 8) + 2 * aligned(4);
}

int64_t TableBytes(const ModelLayout& layout) {
  int64_t bytes = 0;
  for (const SegmentSpec& segment : layout.segments) bytes = std::max(bytes, segment.gpu_tables);
  return bytes;
}

}  // namespace ds
