// What the ranks tell each other in Norm's all-gather, and what they learn from it.
#pragma once

#include <span>

#include "kernels/step_decision.h"
#include "runtime/exec/executor.h"
#include "runtime/plan/plan.h"

namespace ds {

/// A rank sends a sum of squares a unit, then these (kernels/step_decision.h).
enum NormFact { kLossSum, kNotices, kBadMicroBatch, kNormFacts };
static_assert(kNormFacts == kNormExtras, "the plan prices what executors send");
static_assert(kNormFacts == kStepFacts, "WriteStepFacts writes them");

/// Throws RuntimeError unless there are as many as the plan takes.
void RequireMicroBatches(const StepInputs& inputs, const PlanOptions& options);

/// What a rank may tell the others in kNotices: bits.
double NoticesOf(const StepInputs& inputs);

/// `gathered`: of each rank, in order, units + kNormFacts doubles. Squares are summed over a unit's ranks in rank
/// order, then over units in model order: the same numbers in the same order under every ZeRO stage.
StepSums SumRanks(std::span<const double> gathered, size_t units, int ranks);

}  // namespace ds
