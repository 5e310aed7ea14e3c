// Optimizer updates, bit for bit against scalar code written from the roundings in optimizer.h, and against the papers'
// formulas in fp64. fused() below is a correctly rounded a*b+c that does not use std::fma.
#include "kernels/optimizer.h"

#include <bit>
#include <limits>

#include "kernels/matmul.h"
#include "test/unit/kernels/optimizer_inputs.h"
#include "test/unit/kernels/optimizer_variants.h"

namespace ds::test {
namespace {

constexpr int64_t kCount = 5003;  // several blocks and an odd rest

/// a * b + c rounded once. The product of two floats is exact in double; the sum is rounded to odd and then to float.
float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, addend = c;
  const double sum = product + addend;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double virtual_addend = sum - product;  // Knuth's two-sum: the rounding error of the sum
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (error != 0 && (bits & 1) == 0) bits += (error > 0) == (sum > 0) ? 1 : -1;
  return static_cast<float>(std::bit_cast<double>(bits));
}

Array State(uint32_t seed, double scale, bool non_negative = false) {
  return OptimizerInput(kCount, seed, scale, non_negative);
}

/// One element of everything an update reads and writes.
struct Element {
  float g, p, m, v;
};

/// Applies `kernel` in every instruction set, on threads 1, 2, 3, 5 and with every working dtype, and `scalar` element
/// by element; compares bits.
template <class Kernel, class Scalar>
void CompareBits(const Kernel& kernel, const Scalar& scalar) {
  const Array g = State(1, 0.1), p = State(2, 1), m = State(3, 0.1), v = State(4, 0.01, true);
  Array want_p = p, want_m = m, want_v = v;
  for (size_t i = 0; i < p.size(); ++i) {
    Element e{static_cast<float>(g[i]), static_cast<float>(p[i]), static_cast<float>(m[i]), static_cast<float>(v[i])};
    scalar(e);
    want_p.Set(i, e.p), want_m.Set(i, e.m), want_v.Set(i, e.v);
  }
  WithKernels with;
  for (const detail::OptimizerKernels* kernels : detail::UsableOptimizerKernels()) {
    with.Use(*kernels);
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      CAPTURE(kernels->name, NameOf(dtype));
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array p1 = p, m1 = m, v1 = v, working(dtype, p.shape());
        kernel(context, g, p1, m1, v1, working);
        return std::vector<Array>{p1, m1, v1, working};
      });
      CHECK(got[0] == want_p);
      CHECK(got[1] == want_m);
      CHECK(got[2] == want_v);
      CHECK(got[3] == want_p.To(dtype));
    }
    Array p1 = p, m1 = m, v1 = v;
    kernel(KernelContext{1}, g, p1, m1, v1, Tensor());
    CHECK(p1 == want_p);
  }
}

void ScalarAdam(const AdamScalars& s, Element& e) {
  const float g = fused(s.weight_decay, e.p, e.g * s.gradient_scale);
  e.m = fused(s.beta1, e.m, s.one_minus_beta1 * g);
  const float part = s.one_minus_beta2 * g;
  e.v = fused(s.beta2, e.v, part * g);
  const float root = static_cast<float>(std::sqrt(static_cast<double>(e.v)));  // correctly rounded for floats
  const float denominator = fused(root, s.inverse_sqrt_correction2, s.eps);
  const float quotient = static_cast<float>(static_cast<double>(e.m) / static_cast<double>(denominator));
  e.p = fused(-s.step_size, quotient, e.p * s.decay_factor);
}

TEST_CASE("Adam and AdamW follow their roundings bit for bit") {
  for (bool decoupled : {false, true})
    for (bool correction : {false, true})
      for (int64_t step : {int64_t{1}, int64_t{10}, int64_t{100000}}) {
        CAPTURE(decoupled, correction, step);
        const AdamScalars s = MakeAdamScalars(3e-4, 0.9, 0.999, 1e-8, 0.1, decoupled, correction, step, 0.5);
        CompareBits([&](const KernelContext& c, Tensor g, Tensor p, Tensor m, Tensor v,
                        Tensor w) { AdamStep(c, s, g, p, m, v, w); },
                    [&](Element& e) { ScalarAdam(s, e); });
      }
}

TEST_CASE("Adam and AdamW agree with their formulas in fp64 over ten steps") {
  const double lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  for (bool decoupled : {false, true}) {
    CAPTURE(decoupled);
    Array p = Array::Random(DType::f32, {1001}, 1), m = Array::Of(DType::f32, {1001}, Values(1001, 0)), v = m;
    Values rp = p.values(), rm(rp.size(), 0), rv(rp.size(), 0);
    for (int64_t t = 1; t <= 10; ++t) {
      const Array g = Array::Random(DType::f32, {1001}, static_cast<uint32_t>(t + 10));
      AdamStep({2}, MakeAdamScalars(lr, beta1, beta2, eps, decay, decoupled, true, t, 1), g, p, m, v, {});
      for (size_t i = 0; i < rp.size(); ++i) {
        double gradient = g[i];
        if (decoupled)
          rp[i] -= lr * decay * rp[i];
        else
          gradient += decay * rp[i];
        rm[i] = beta1 * rm[i] + (1 - beta1) * gradient;
        rv[i] = beta2 * rv[i] + (1 - beta2) * gradient * gradient;
        const double corrected = rv[i] / (1 - std::pow(beta2, static_cast<double>(t)));
        rp[i] -= lr * (rm[i] / (1 - std::pow(beta1, static_cast<double>(t)))) / (std::sqrt(corrected) + eps);
      }
    }
    CheckClose("p", p, rp, 1e-5);
  }
}

TEST_CASE("SGD follows its roundings bit for bit") {
  for (float momentum : {0.0f, 0.9f})
    for (bool nesterov : {false, true})
      for (bool first : {false, true}) {
        CAPTURE(momentum, nesterov, first);
        const SgdScalars s{0.25f, 0.1f, momentum, 0.7f, 0.01f, nesterov, first};
        CompareBits([&](const KernelContext& c, Tensor g, Tensor p, Tensor m, Tensor,
                        Tensor w) { SgdStep(c, s, g, p, momentum == 0 ? Tensor() : m, w); },
                    [&](Element& e) {
                      float d = fused(s.weight_decay, e.p, e.g * s.gradient_scale);
                      if (s.momentum != 0) {
                        const float g = d;
                        e.m = s.first_step ? g : fused(s.momentum, e.m, s.one_minus_dampening * g);
                        d = s.nesterov ? fused(s.momentum, e.m, g) : e.m;
                      }
                      e.p = fused(-s.lr, d, e.p);
                    });
      }
}

TEST_CASE("Lion follows its roundings bit for bit") {
  const LionScalars s{0.5f, 1e-3f, 0.9f, 0.1f, 0.99f, 0.01f, 0.999f};
  CompareBits(
      [&](const KernelContext& c, Tensor g, Tensor p, Tensor m, Tensor, Tensor w) { LionStep(c, s, g, p, m, w); },
      [&](Element& e) {
        const float g = e.g * s.gradient_scale;
        const float c = fused(s.beta1, e.m, s.one_minus_beta1 * g);
        const float sign = c == 0 ? c : std::copysign(1.0f, c);
        e.p = fused(-s.lr, sign, e.p * s.decay_factor);
        e.m = fused(s.beta2, e.m, s.one_minus_beta2 * g);
      });
}

TEST_CASE("Adagrad follows its roundings bit for bit") {
  const AdagradScalars s{2.0f, 0.05f, 1e-10f, 0.02f};
  CompareBits(
      [&](const KernelContext& c, Tensor g, Tensor p, Tensor, Tensor v, Tensor w) { AdagradStep(c, s, g, p, v, w); },
      [&](Element& e) {
        const float g = fused(s.weight_decay, e.p, e.g * s.gradient_scale);
        e.v = fused(g, g, e.v);
        const float root = static_cast<float>(std::sqrt(static_cast<double>(e.v)));
        const float denominator = root + s.eps;
        e.p = fused(-s.lr, static_cast<float>(static_cast<double>(g) / static_cast<double>(denominator)), e.p);
      });
}

TEST_CASE("RMSprop follows its roundings bit for bit") {
  for (float momentum : {0.0f, 0.9f}) {
    CAPTURE(momentum);
    const RmsPropScalars s{0.5f, 0.01f, 0.99f, 0.01f, 1e-8f, momentum, 0.02f};
    CompareBits([&](const KernelContext& c, Tensor g, Tensor p, Tensor m, Tensor v,
                    Tensor w) { RmsPropStep(c, s, g, p, v, momentum == 0 ? Tensor() : m, w); },
                [&](Element& e) {
                  const float g = fused(s.weight_decay, e.p, e.g * s.gradient_scale);
                  const float part = s.one_minus_alpha * g;
                  e.v = fused(s.alpha, e.v, part * g);
                  const float denominator = static_cast<float>(std::sqrt(static_cast<double>(e.v))) + s.eps;
                  float d = static_cast<float>(static_cast<double>(g) / static_cast<double>(denominator));
                  if (momentum != 0) d = e.m = fused(s.momentum, e.m, d);
                  e.p = fused(-s.lr, d, e.p);
                });
  }
}

TEST_CASE("RMSprop agrees with its formula in fp64 over ten steps") {
  const double lr = 0.01, alpha = 0.9, eps = 1e-8, momentum = 0.8, decay = 0.1;
  Array p = Array::Random(DType::f32, {1001}, 1), v = Array::Of(DType::f32, {1001}, Values(1001, 0)), b = v;
  Values rp = p.values(), rv(rp.size(), 0), rb(rp.size(), 0);
  const RmsPropScalars s{1.0f, 0.01f, 0.9f, 0.1f, 1e-8f, 0.8f, 0.1f};
  for (uint32_t t = 1; t <= 10; ++t) {
    const Array g = Array::Random(DType::f32, {1001}, t + 10);
    RmsPropStep({2}, s, g, p, v, b, {});
    for (size_t i = 0; i < rp.size(); ++i) {
      const double gradient = g[i] + decay * rp[i];
      rv[i] = alpha * rv[i] + (1 - alpha) * gradient * gradient;
      rb[i] = momentum * rb[i] + gradient / (std::sqrt(rv[i]) + eps);
      rp[i] -= lr * rb[i];
    }
  }
  CheckClose("p", p, rp, 1e-5);
}

TEST_CASE("denormals are not flushed, on threads that have run oneDNN too") {
  const int64_t n = 4096;
  const double tiny = std::numeric_limits<float>::denorm_min();
  const auto got = OnAnyThreads([&](const KernelContext& context) {
    Array a = Array::Random(DType::bf16, {256, 64}, 1), c(DType::bf16, {256, 256});
    MatMul(context, a, a, c, {false, true, false, {}, 1.0f});
    Array g = Array::Of(DType::f32, {n}, Values(n, 3 * tiny)), p = Array::Of(DType::f32, {n}, Values(n, 8 * tiny));
    SgdStep(context, {1, 1, 0, 0, 0, false, false}, g, p, {}, {});
    return std::vector<Array>{p};
  });
  CHECK(got[0] == Array::Of(DType::f32, {n}, Values(n, 5 * tiny)));
}

TEST_CASE("NaN gradients reach the parameters") {
  Array g = Array::Of(DType::f32, {3}, {std::nan(""), 1, 1});
  const auto fresh = [] { return Array::Of(DType::f32, {3}, {1, 1, 1}); };
  Array p = fresh(), m = fresh(), v = fresh();
  LionStep({}, {1, 0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 1}, g, p, m, {});
  CHECK((std::isnan(p[0]) && !std::isnan(p[1])));
  p = fresh(), m = fresh();
  AdamStep({}, MakeAdamScalars(0.1, 0.9, 0.99, 1e-8, 0, true, true, 1, 1), g, p, m, v, {});
  CHECK((std::isnan(p[0]) && !std::isnan(p[1])));
}

TEST_CASE("a step takes the gradient's scale from memory where it is told to, and does nothing where it is told to") {
  const float scale = 0.3f;
  const int32_t go = 0, skip = 1;
  const Array g = State(1, 1), start = State(2, 0.1), second = State(3, 1e-3, true);
  const auto step = [&](int kind, float gradient_scale, const StepControl& control) {
    Array p = start, m = State(4, 0.1), v = second, working(DType::bf16, {kCount});
    AdamScalars adam = MakeAdamScalars(1e-3, 0.9, 0.95, 1e-8, 0.1, true, true, 3, gradient_scale);
    if (kind == 0) AdamStep({2}, adam, g, p, m, v, working, control);
    if (kind == 1) SgdStep({2}, {gradient_scale, 0.1f, 0.9f, 1, 0.1f, true, false}, g, p, m, working, control);
    if (kind == 2) LionStep({2}, {gradient_scale, 0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 1}, g, p, m, working, control);
    if (kind == 3) AdagradStep({2}, {gradient_scale, 0.1f, 1e-8f, 0.1f}, g, p, v, working, control);
    if (kind == 4) RmsPropStep({2}, {gradient_scale, 0.1f, 0.9f, 0.1f, 1e-8f, 0.9f, 0}, g, p, v, m, working, control);
    return std::vector<Array>{p, m, v, working};
  };
  for (int kind = 0; kind < 5; ++kind) {
    CAPTURE(kind);
    const auto want = step(kind, scale, {});
    CHECK(step(kind, 1, {&scale, nullptr}) == want);
    CHECK(step(kind, 1, {&scale, &go}) == want);
    CHECK(step(kind, scale, {nullptr, &skip}) ==
          std::vector<Array>{start, State(4, 0.1), second, Array(DType::bf16, {kCount})});
    CHECK_FALSE(want[0] == start);
  }
}

TEST_CASE("optimizers refuse tensors that do not fit") {
  Array p(DType::f32, {4}), other(DType::f32, {5}), narrow(DType::bf16, {4});
  const AdamScalars s = MakeAdamScalars(0.1, 0.9, 0.99, 1e-8, 0, true, true, 1, 1);
  CHECK_THROWS_AS(AdamStep({}, s, other, p, p, p, {}), std::invalid_argument);
  CHECK_THROWS_AS(AdamStep({}, s, p, narrow, p, p, {}), std::invalid_argument);
  CHECK_THROWS_AS(AdamStep({}, s, p, p, p, narrow, {}), std::invalid_argument);
  CHECK_THROWS_AS(AdamStep({}, s, p, p, p, p, other), std::invalid_argument);
  CHECK_THROWS_AS(SgdStep({}, {1, 1, 0.9f, 1, 0, false, false}, p, p, {}, {}), std::invalid_argument);
  CHECK_THROWS_AS(RmsPropStep({}, {1, 1, 0.9f, 0.1f, 1, 0.9f, 0}, p, p, p, {}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
