// When the actions of plans run: each stream in its order and after its waits, as executors run them.
#pragma once

#include <vector>

#include "runtime/plan/price.h"

namespace ds {

/// When one plan's actions begin and end, from the begin of the step.
struct PlanTiming {
  std::vector<double> begin, end;  ///< of an action
  double compute_seconds = 0;      ///< of the compute stream's work, without Norm
};

/// `plans`: of the stages of one pipeline, one of each, or of a single rank. A message begins when both its ends are
/// ready, and Norm when all are; where the plan of the other end is not there, whoever waits for it does not wait.
/// Throws std::logic_error where the plans' messages do not meet (CheckRanks).
std::vector<PlanTiming> TimeTogether(const ModelLayout& layout, const std::vector<const Plan*>& plans,
                                     const Machine& machine);

}  // namespace ds
