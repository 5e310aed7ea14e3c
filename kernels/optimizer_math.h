// One element's update under each optimizer: the roundings of optimizer.h, the same on every device. Internal to
// kernels/.
//
// An update takes the gradient, the parameter and the optimizer's states of the element, and changes all but the first.
#pragma once

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/optimizer.h"

namespace ds::detail {

[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const AdamScalars& s, float gradient, float& p, float& m,
                                                         float& v) {
  const float g = std::fma(s.weight_decay, p, gradient * s.gradient_scale);
  m = std::fma(s.beta1, m, s.one_minus_beta1 * g);
  v = std::fma(s.beta2, v, s.one_minus_beta2 * g * g);
  const float denominator = std::fma(std::sqrt(v), s.inverse_sqrt_correction2, s.eps);
  p = std::fma(-s.step_size, m / denominator, p * s.decay_factor);
}

/// Without momentum.
[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const SgdScalars& s, float gradient, float& p) {
  p = std::fma(-s.lr, std::fma(s.weight_decay, p, gradient * s.gradient_scale), p);
}
[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const SgdScalars& s, float gradient, float& p, float& buffer) {
  const float g = std::fma(s.weight_decay, p, gradient * s.gradient_scale);
  buffer = s.first_step ? g : std::fma(s.momentum, buffer, s.one_minus_dampening * g);
  p = std::fma(-s.lr, s.nesterov ? std::fma(s.momentum, buffer, g) : buffer, p);
}

[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const LionScalars& s, float gradient, float& p, float& m) {
  const float g = gradient * s.gradient_scale;
  const float c = std::fma(s.beta1, m, s.one_minus_beta1 * g);
  const float sign = c > 0 ? 1.0f : (c < 0 ? -1.0f : c);  // zero and NaN are their own sign
  p = std::fma(-s.lr, sign, p * s.decay_factor);
  m = std::fma(s.beta2, m, s.one_minus_beta2 * g);
}

[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const AdagradScalars& s, float gradient, float& p, float& v) {
  const float g = std::fma(s.weight_decay, p, gradient * s.gradient_scale);
  v = std::fma(g, g, v);
  p = std::fma(-s.lr, g / (std::sqrt(v) + s.eps), p);
}

/// q of optimizer.h: the gradient over the root of the mean of its squares.
[[gnu::always_inline]] DS_HOST_DEVICE inline float RmsPropDirection(const RmsPropScalars& s, float gradient, float p,
                                                                    float& v) {
  const float g = std::fma(s.weight_decay, p, gradient * s.gradient_scale);
  v = std::fma(s.alpha, v, s.one_minus_alpha * g * g);
  return g / (std::sqrt(v) + s.eps);
}
/// Without momentum.
[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const RmsPropScalars& s, float gradient, float& p, float& v) {
  p = std::fma(-s.lr, RmsPropDirection(s, gradient, p, v), p);
}
[[gnu::always_inline]] DS_HOST_DEVICE inline void Update(const RmsPropScalars& s, float gradient, float& p, float& v,
                                                         float& buffer) {
  buffer = std::fma(s.momentum, buffer, RmsPropDirection(s, gradient, p, v));
  p = std::fma(-s.lr, buffer, p);
}

}  // namespace ds::detail
