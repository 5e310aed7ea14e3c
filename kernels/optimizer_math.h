// One element's update under each optimizer: the roundings of optimizer.h, the same on every device and in every
// instruction set. Internal to kernels/.
//
// An update takes the gradient, the parameter and the optimizer's states of the element, and changes all but the first.
// V is float, or a vector of them (optimizer_vectors.h): +, * and / of two V, and Fma, Times, Plus, Sqrt and Sign
// below, each one IEEE rounding a lane.
#pragma once

#include <cmath>

#include "kernels/host_device.h"
#include "kernels/optimizer.h"

#define DS_UPDATE [[gnu::always_inline]] DS_HOST_DEVICE inline

namespace ds::detail {

DS_UPDATE float Fma(float a, float b, float c) { return std::fma(a, b, c); }
DS_UPDATE float Times(float a, float b) { return a * b; }
DS_UPDATE float Plus(float a, float b) { return a + b; }
DS_UPDATE float Sqrt(float x) { return std::sqrt(x); }
/// 1 or -1; zero and NaN are their own sign.
DS_UPDATE float Sign(float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : x); }

/// The gradient as scaled and with weight decay.
template <class Scalars, class V>
DS_UPDATE V DecayedGradient(const Scalars& s, V gradient, V p) {
  return Fma(s.weight_decay, p, Times(s.gradient_scale, gradient));
}

template <class V>
DS_UPDATE void Update(const AdamScalars& s, V gradient, V& p, V& m, V& v) {
  const V g = DecayedGradient(s, gradient, p);
  m = Fma(s.beta1, m, Times(s.one_minus_beta1, g));
  v = Fma(s.beta2, v, Times(s.one_minus_beta2, g) * g);
  const V denominator = Fma(s.inverse_sqrt_correction2, Sqrt(v), s.eps);
  p = Fma(-s.step_size, m / denominator, Times(s.decay_factor, p));
}

/// Without momentum.
template <class V>
DS_UPDATE void Update(const SgdScalars& s, V gradient, V& p) {
  p = Fma(-s.lr, DecayedGradient(s, gradient, p), p);
}
template <class V>
DS_UPDATE void Update(const SgdScalars& s, V gradient, V& p, V& buffer) {
  const V g = DecayedGradient(s, gradient, p);
  buffer = s.first_step ? g : Fma(s.momentum, buffer, Times(s.one_minus_dampening, g));
  p = Fma(-s.lr, s.nesterov ? Fma(s.momentum, buffer, g) : buffer, p);
}

template <class V>
DS_UPDATE void Update(const LionScalars& s, V gradient, V& p, V& m) {
  const V g = Times(s.gradient_scale, gradient);
  const V c = Fma(s.beta1, m, Times(s.one_minus_beta1, g));
  p = Fma(-s.lr, Sign(c), Times(s.decay_factor, p));
  m = Fma(s.beta2, m, Times(s.one_minus_beta2, g));
}

template <class V>
DS_UPDATE void Update(const AdagradScalars& s, V gradient, V& p, V& v) {
  const V g = DecayedGradient(s, gradient, p);
  v = Fma(g, g, v);
  p = Fma(-s.lr, g / Plus(s.eps, Sqrt(v)), p);
}

/// q of optimizer.h: the gradient over the root of the mean of its squares.
template <class V>
DS_UPDATE V RmsPropDirection(const RmsPropScalars& s, V gradient, V p, V& v) {
  const V g = DecayedGradient(s, gradient, p);
  v = Fma(s.alpha, v, Times(s.one_minus_alpha, g) * g);
  return g / Plus(s.eps, Sqrt(v));
}
/// Without momentum.
template <class V>
DS_UPDATE void Update(const RmsPropScalars& s, V gradient, V& p, V& v) {
  p = Fma(-s.lr, RmsPropDirection(s, gradient, p, v), p);
}
template <class V>
DS_UPDATE void Update(const RmsPropScalars& s, V gradient, V& p, V& v, V& buffer) {
  buffer = Fma(s.momentum, buffer, RmsPropDirection(s, gradient, p, v));
  p = Fma(-s.lr, buffer, p);
}

}  // namespace ds::detail

#undef DS_UPDATE
