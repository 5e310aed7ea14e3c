// Proves a plan before it runs.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"

namespace ds {

/// Faults of one rank's plan, each naming the action (Describe) and the buffer; empty: none. Finds:
///   - a read of a buffer that nothing wrote, or after Release, or whose memory was handed to another buffer;
///   - two conflicting uses (of one buffer, or of buffers that share memory) that are not ordered by streams and waits;
///   - a wait for a later action, a missing signal, an operand that the action needs and lacks;
///   - an action that the step needs and lacks: a segment's pass, a bucket's reduction, a unit's step or gather;
///   - gradients that are not accumulated in micro-batch order.
std::vector<std::string> CheckPlan(const ModelLayout& layout, const Plan& plan);

/// Faults across ranks: communicators whose ranks would not issue the same collectives in the same order, messages
/// between stages whose two ends would not be the same (what, in which order, how many bytes), or orders that deadlock.
/// `plans` are those of ranks 0..n-1, stage by stage. by_role: where all plans of each stage are equal, one of each
/// counts, so that for thousands of ranks one plan a stage is enough; false: every rank is followed.
std::vector<std::string> CheckRanks(const ModelLayout& layout, const std::vector<Plan>& plans, bool by_role = true);

}  // namespace ds
