#include "runtime/exec/step_facts.h"

#include <cmath>

#include "runtime/base/error.h"

namespace ds {
namespace {

enum Notice { kStopAsked = 1, kCheckpointFailed = 2 };

}  // namespace

void RequireMicroBatches(const StepInputs& inputs, const PlanOptions& options) {
  const int64_t wanted = MicroBatchesOf(options);
  if (inputs.micro_batches.size() != static_cast<size_t>(wanted))
    throw RuntimeError(std::to_string(inputs.micro_batches.size()) + " micro-batches for a plan of " +
                       std::to_string(wanted));
}

double NoticesOf(const StepInputs& inputs) {
  return (inputs.stop ? kStopAsked : 0) | (inputs.checkpoint_failed ? kCheckpointFailed : 0);
}

StepSums SumRanks(std::span<const double> gathered, size_t units, int ranks) {
  const size_t width = units + kNormFacts;
  StepSums sums;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* facts = &gathered[static_cast<size_t>(rank) * width + units];
    sums.rank_loss.push_back(facts[kLossSum]);
    sums.loss += facts[kLossSum];
    const int notices = static_cast<int>(facts[kNotices]);
    sums.stop = sums.stop || (notices & kStopAsked);
    sums.checkpoint_failed = sums.checkpoint_failed || (notices & kCheckpointFailed);
    if (facts[kBadMicroBatch] < 0 || sums.bad_loss_rank >= 0) continue;
    sums.bad_loss_rank = rank;
    sums.bad_loss_micro_batch = static_cast<int>(facts[kBadMicroBatch]);
  }
  for (size_t unit = 0; unit < units; ++unit) {
    double squares = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const double part = gathered[static_cast<size_t>(rank) * width + unit];
      squares += part;
      if (std::isfinite(part) || sums.bad_unit == static_cast<int>(unit)) continue;
      sums.bad_unit = static_cast<int>(unit);
      sums.bad_rank = rank;
    }
    sums.squares += squares;
  }
  return sums;
}

}  // namespace ds
