// Clipping by global norm, with torch.nn.utils.clip_grad_norm_'s and DeepSpeed's formula.
#pragma once

namespace ds {

/// The factor for every gradient: max_norm / (norm + 1e-6) where that is below 1; 1 otherwise or when max_norm is 0.
inline double ClipCoefficient(double norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

}  // namespace ds
