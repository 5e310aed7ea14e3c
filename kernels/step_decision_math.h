// The arithmetic of step_decision.h, the same on every device. Internal to kernels/.
#pragma once

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/step_decision.h"

namespace ds::detail {

DS_HOST_DEVICE inline void WriteFacts(const double* losses, int64_t count, double notices, double* facts) {
  double sum = 0, bad = -1;
  for (int64_t i = 0; i < count; ++i) {
    sum += losses[i];
    if (!std::isfinite(losses[i]) && bad < 0) bad = static_cast<double>(i);
  }
  facts[0] = sum, facts[1] = notices, facts[2] = bad;
}

DS_HOST_DEVICE inline void Decide(const StepRule& rule, const double* facts, float* gradient_scale, int32_t* skip) {
  const int64_t width = rule.units + kStepFacts;
  double loss = 0, squares = 0;
  for (int64_t rank = 0; rank < rule.ranks; ++rank) loss += facts[rank * width + rule.units];
  for (int64_t unit = 0; unit < rule.units; ++unit) {
    double of_unit = 0;
    for (int64_t rank = 0; rank < rule.ranks; ++rank) of_unit += facts[rank * width + unit];
    squares += of_unit;
  }
  const bool step = rule.may_step && std::isfinite(loss) && std::isfinite(squares);
  const double norm = std::sqrt(squares) / rule.loss_scale;
  double coefficient = 1.0;
  if (rule.max_norm > 0) {
    const double ratio = rule.max_norm / (norm + 1e-6);
    if (ratio < 1.0) coefficient = ratio;
  }
  *gradient_scale = step ? static_cast<float>(coefficient / rule.loss_scale) : 0.0f;
  *skip = step ? 0 : 1;
}

}  // namespace ds::detail
