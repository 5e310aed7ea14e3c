// What a step's numbers decide: whether the optimizer steps, and what it multiplies gradients by. Computed where the
// numbers are, so that on a GPU the host need not wait for them.
//
// Facts of a rank: a sum of squares a unit, then kStepFacts values: the sum of its losses, its notices (bits that the
// kernels pass on), and the first micro-batch whose loss is not finite (-1: none). All f64.
#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/tensor.h"

namespace ds {

inline constexpr int64_t kStepFacts = 3;

/// facts[0..2] = the sum of losses, in order; notices; the index of the first that is not finite. losses: [M] f64;
/// facts: [kStepFacts] f64.
void WriteStepFacts(const KernelContext& context, Tensor losses, double notices, Tensor facts);

struct StepRule {
  int64_t ranks = 1, units = 1;
  double loss_scale = 1;  ///< gradients are times this
  double max_norm = 0;    ///< of the gradient (ClipCoefficient of runtime/optim/clip.h); 0: any
  bool may_step = true;
};

/// facts: [ranks, units + kStepFacts]. A step is skipped where the loss or the sum of all squares is not finite.
/// Squares are summed over a unit's ranks in rank order, then over units in order; losses in rank order.
/// gradient_scale: [1] f32, coefficient / loss_scale, 0 when skipped; skip: [1] i32, 0 or 1.
void DecideStep(const KernelContext& context, const StepRule& rule, Tensor facts, Tensor gradient_scale, Tensor skip);

}  // namespace ds
