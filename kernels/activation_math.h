// The formulas of the activations: the same IEEE operations on every device, but for the logistic function where a
// device brings its own. Internal to kernels/.
#pragma once

#include <numbers>
#include <type_traits>

#include "kernels/activation.h"
#include "kernels/host_device.h"
#include "kernels/vector_math.h"

namespace ds::detail {

constexpr double kSqrtHalf = std::numbers::sqrt2 / 2;
constexpr double kInverseSqrt2Pi = std::numbers::inv_sqrtpi * kSqrtHalf;         // 1 / sqrt(2 pi)
constexpr double kSqrt2OverPi = std::numbers::inv_sqrtpi * std::numbers::sqrt2;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

template <class A>
[[gnu::always_inline]] DS_HOST_DEVICE inline A Sigmoid(A x) {
  return A(1) / (A(1) + Exp(-x));
}

/// What the formulas below take for the logistic function, unless a device has another.
struct PortableSigmoid {
  template <class A>
  [[gnu::always_inline]] DS_HOST_DEVICE A operator()(A x) const {
    return Sigmoid(x);
  }
};

/// The argument of the tanh in GPT-2's approximation, doubled: (1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its
/// relative precision for negative u.
template <class A>
[[gnu::always_inline]] DS_HOST_DEVICE inline A TwiceTanhArgument(A x) {
  return A(2 * kSqrt2OverPi) * (x + A(kCubic) * x * x * x);
}

template <GeluKind kind, class A, class Logistic = PortableSigmoid>
[[gnu::always_inline]] DS_HOST_DEVICE inline A Gelu(A x, Logistic sigmoid = {}) {
  if constexpr (kind == GeluKind::exact)
    return A(0.5) * x * (A(1) + Erf(x * A(kSqrtHalf)));
  else
    return x * sigmoid(TwiceTanhArgument(x));
}

template <GeluKind kind, class A, class Logistic = PortableSigmoid>
[[gnu::always_inline]] DS_HOST_DEVICE inline A GeluDerivative(A x, Logistic sigmoid = {}) {
  if constexpr (kind == GeluKind::exact) {
    const A density = A(kInverseSqrt2Pi) * Exp(A(-0.5) * x * x);
    return A(0.5) * (A(1) + Erf(x * A(kSqrtHalf))) + x * density;
  } else {
    // Beyond 9 the derivative is 0 or 1 in fp32 and within 1e-60 of them; unbounded, 0 times infinity would appear.
    const A bounded = x > A(9) ? A(9) : (x < A(-9) ? A(-9) : x);
    const A s = sigmoid(TwiceTanhArgument(bounded));
    const A slope = A(2 * kSqrt2OverPi) * (A(1) + A(3 * kCubic) * bounded * bounded);
    return s + bounded * s * (A(1) - s) * slope;
  }
}

/// body(kind) with the kind as a compile-time constant.
template <class Body>
void DispatchKind(GeluKind kind, const Body& body) {
  if (kind == GeluKind::exact)
    body(std::integral_constant<GeluKind, GeluKind::exact>{});
  else
    body(std::integral_constant<GeluKind, GeluKind::tanh>{});
}

}  // namespace ds::detail
