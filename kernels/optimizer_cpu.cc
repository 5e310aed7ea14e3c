#include "kernels/optimizer.h"

#include <cmath>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/optimizer_math.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

constexpr int64_t kBlock = 2048;  ///< elements that are updated before their working copy is rounded from the cache

/// The flat fp32 array of an optimizer tensor of n elements.
float* State(const char* kernel, const char* name, const Tensor& t, int64_t n) {
  detail::CheckVector(kernel, name, t, DType::f32, n);
  return t.as<float>();
}

void CheckWorking(const char* kernel, const Tensor& working, int64_t n) {
  if (!working) return;
  detail::CheckFloating(kernel, "working", working);
  detail::CheckVector(kernel, "working", working, working.dtype, n);
}

bool Skipped(const StepControl& control) { return control.skip && *control.skip != 0; }

/// The scalars with the gradient's scale that counts.
template <class Scalars>
Scalars Controlled(Scalars s, const StepControl& control) {
  if (control.gradient_scale) s.gradient_scale = *control.gradient_scale;
  return s;
}

/// update(begin, end) in blocks, each followed by rounding master into `working` when that is given.
template <class Update>
void ForEachBlock(const KernelContext& context, const char* kernel, const float* master, int64_t n,
                  const Tensor& working, const Update& update) {
  if (!working) return detail::ParallelBlocks(context, n, kBlock, update);
  detail::DispatchFloating(working.dtype, kernel, [&](auto type) {
    auto* copy = working.as<decltype(type)>();
    detail::ParallelBlocks(context, n, kBlock, [&](int64_t begin, int64_t end) {
      update(begin, end);
      detail::Convert(master + begin, copy + begin, end - begin);
    });
  });
}

}  // namespace

AdamScalars MakeAdamScalars(double lr, double beta1, double beta2, double eps, double weight_decay, bool decoupled,
                            bool bias_correction, int64_t step, double gradient_scale) {
  const double t = static_cast<double>(step);
  const double correction1 = bias_correction ? 1 - std::pow(beta1, t) : 1;
  const double correction2 = bias_correction ? 1 - std::pow(beta2, t) : 1;
  AdamScalars s;
  s.gradient_scale = static_cast<float>(gradient_scale);
  s.beta1 = static_cast<float>(beta1);
  s.one_minus_beta1 = static_cast<float>(1 - beta1);
  s.beta2 = static_cast<float>(beta2);
  s.one_minus_beta2 = static_cast<float>(1 - beta2);
  s.eps = static_cast<float>(eps);
  s.weight_decay = decoupled ? 0.0f : static_cast<float>(weight_decay);
  s.decay_factor = decoupled ? static_cast<float>(1 - lr * weight_decay) : 1.0f;
  s.step_size = static_cast<float>(lr / correction1);
  s.inverse_sqrt_correction2 = static_cast<float>(1 / std::sqrt(correction2));
  return s;
}

void AdamStep(const KernelContext& context, const AdamScalars& scalars, Tensor gradient, Tensor master, Tensor m,
              Tensor v, Tensor working, const StepControl& control) {
  const char* kernel = "AdamStep";
  const int64_t n = master.numel();
  const float* gs = State(kernel, "gradient", gradient, n);
  float *ps = State(kernel, "master", master, n), *ms = State(kernel, "m", m, n), *vs = State(kernel, "v", v, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::AdamStep, context, scalars, gradient, master, m, v, working, control)) return;
  if (Skipped(control)) return;
  const AdamScalars s = Controlled(scalars, control);
  ForEachBlock(context, kernel, ps, n, working, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], ms[i], vs[i]);
  });
}

void SgdStep(const KernelContext& context, const SgdScalars& scalars, Tensor gradient, Tensor master, Tensor buffer,
             Tensor working, const StepControl& control) {
  const char* kernel = "SgdStep";
  const int64_t n = master.numel();
  const float* gs = State(kernel, "gradient", gradient, n);
  float* ps = State(kernel, "master", master, n);
  const bool plain = scalars.momentum == 0.0f;
  float* bs = plain ? nullptr : State(kernel, "buffer", buffer, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::SgdStep, context, scalars, gradient, master, buffer, working, control)) return;
  if (Skipped(control)) return;
  const SgdScalars s = Controlled(scalars, control);
  ForEachBlock(context, kernel, ps, n, working, [=](int64_t begin, int64_t end) {
    if (plain) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i]);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], bs[i]);
    }
  });
}

void LionStep(const KernelContext& context, const LionScalars& scalars, Tensor gradient, Tensor master, Tensor m,
              Tensor working, const StepControl& control) {
  const char* kernel = "LionStep";
  const int64_t n = master.numel();
  const float* gs = State(kernel, "gradient", gradient, n);
  float *ps = State(kernel, "master", master, n), *ms = State(kernel, "m", m, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::LionStep, context, scalars, gradient, master, m, working, control)) return;
  if (Skipped(control)) return;
  const LionScalars s = Controlled(scalars, control);
  ForEachBlock(context, kernel, ps, n, working, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], ms[i]);
  });
}

void AdagradStep(const KernelContext& context, const AdagradScalars& scalars, Tensor gradient, Tensor master, Tensor v,
                 Tensor working, const StepControl& control) {
  const char* kernel = "AdagradStep";
  const int64_t n = master.numel();
  const float* gs = State(kernel, "gradient", gradient, n);
  float *ps = State(kernel, "master", master, n), *vs = State(kernel, "v", v, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::AdagradStep, context, scalars, gradient, master, v, working, control)) return;
  if (Skipped(control)) return;
  const AdagradScalars s = Controlled(scalars, control);
  ForEachBlock(context, kernel, ps, n, working, [=](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], vs[i]);
  });
}

void RmsPropStep(const KernelContext& context, const RmsPropScalars& scalars, Tensor gradient, Tensor master, Tensor v,
                 Tensor buffer, Tensor working, const StepControl& control) {
  const char* kernel = "RmsPropStep";
  const int64_t n = master.numel();
  const float* gs = State(kernel, "gradient", gradient, n);
  float *ps = State(kernel, "master", master, n), *vs = State(kernel, "v", v, n);
  const bool plain = scalars.momentum == 0.0f;
  float* bs = plain ? nullptr : State(kernel, "buffer", buffer, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::RmsPropStep, context, scalars, gradient, master, v, buffer, working, control))
    return;
  if (Skipped(control)) return;
  const RmsPropScalars s = Controlled(scalars, control);
  ForEachBlock(context, kernel, ps, n, working, [=](int64_t begin, int64_t end) {
    if (plain) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], vs[i]);
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) detail::Update(s, gs[i], ps[i], vs[i], bs[i]);
    }
  });
}

}  // namespace ds
