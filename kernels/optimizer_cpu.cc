#include "kernels/optimizer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/numa.h"
#include "kernels/optimizer_kernels.h"

namespace ds {
namespace {

/// The flat fp32 array of an optimizer tensor of n elements.
float* State(const char* kernel, const char* name, const Tensor& t, int64_t n) {
  detail::CheckVector(kernel, name, t, DType::f32, n);
  return t.as<float>();
}

void CheckGradient(const char* kernel, const Tensor& gradient, int64_t n) {
  detail::CheckMemory(kernel, "gradient", gradient);
  const bool half = gradient.dtype == DType::bf16 || gradient.dtype == DType::f16;
  if ((gradient.dtype != DType::f32 && !half) || gradient.numel() != n)
    detail::Check(false, kernel,
                  detail::Describe("gradient", gradient) + ", expected f32, bf16 or f16 " + Shape{n}.str());
  if (half && gradient.device.kind != DeviceKind::cpu)
    detail::Check(false, kernel,
                  detail::Describe("gradient", gradient) + ": on GPUs gradients are f32; Cast it before the step");
}

void CheckWorking(const char* kernel, const Tensor& working, int64_t n) {
  if (!working) return;
  detail::CheckFloating(kernel, "working", working);
  detail::CheckVector(kernel, "working", working, working.dtype, n);
}

bool Skipped(const StepControl& control) { return control.skip && *control.skip != 0; }

/// Elements of a block, by their number alone: some for each of many threads, and no more than what a core's cache has.
int64_t BlockOf(int64_t n) {
  constexpr int64_t kUnit = 1024, kLeast = 2 * kUnit, kMost = 64 * kUnit, kBlocks = 64;
  return std::clamp((n / kBlocks + kUnit - 1) / kUnit * kUnit, kLeast, kMost);
}

/// A kernel's step over all elements, by all threads; the scalars with the gradient's scale that counts.
template <class Scalars>
void Run(const KernelContext& context,
         void (*detail::OptimizerKernels::*update)(const Scalars&, const detail::OptimizerArrays&, int64_t, int64_t),
         Scalars s, const StepControl& control, const Tensor& gradient, float* master, float* first, float* second,
         const Tensor& working) {
  if (Skipped(control)) return;
  if (control.gradient_scale) s.gradient_scale = *control.gradient_scale;
  detail::OptimizerArrays arrays{gradient.data, gradient.dtype, master, {first, second}};
  const int64_t n = gradient.numel(), states = 1 + (first ? 1 : 0) + (second ? 1 : 0);
  if (working) {
    arrays.working = working.data, arrays.working_type = working.dtype;
    arrays.stream = StepExceedsCaches(gradient.bytes() + 4 * states * n + working.bytes());
  }
  const bool portable = arrays.working_type == DType::f64;
  const auto run = (portable ? detail::kPortableOptimizerKernels : detail::ChosenOptimizerKernels()).*update;
  detail::ParallelOnNodes(context, detail::OwnNumaNodes(), n, BlockOf(n),
                          [&](int64_t begin, int64_t end) { run(s, arrays, begin, end); });
}

}  // namespace

bool StepExceedsCaches(int64_t bytes) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  static const int64_t known = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  constexpr int64_t known = 0;
#endif
  constexpr int64_t kUsual = int64_t{32} << 20;
  return bytes > (known > 0 ? known : kUsual);
}

bool PlaceStepMemory(const Tensor& t) {
  constexpr int64_t kFew = int64_t{1} << 20;  // not worth a call
  if (!t || t.device.kind != DeviceKind::cpu || t.bytes() < kFew) return true;
  return detail::PlaceOnNodes(detail::OwnNumaNodes(), t.data, t.numel(), static_cast<int64_t>(SizeOf(t.dtype)),
                              BlockOf(t.numel()));
}

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
  CheckGradient(kernel, gradient, n);
  float *ps = State(kernel, "master", master, n), *ms = State(kernel, "m", m, n), *vs = State(kernel, "v", v, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::AdamStep, context, scalars, gradient, master, m, v, working, control)) return;
  Run(context, &detail::OptimizerKernels::adam, scalars, control, gradient, ps, ms, vs, working);
}

void SgdStep(const KernelContext& context, const SgdScalars& scalars, Tensor gradient, Tensor master, Tensor buffer,
             Tensor working, const StepControl& control) {
  const char* kernel = "SgdStep";
  const int64_t n = master.numel();
  CheckGradient(kernel, gradient, n);
  float* ps = State(kernel, "master", master, n);
  const bool plain = scalars.momentum == 0.0f;
  float* bs = plain ? nullptr : State(kernel, "buffer", buffer, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::SgdStep, context, scalars, gradient, master, buffer, working, control)) return;
  Run(context, &detail::OptimizerKernels::sgd, scalars, control, gradient, ps, bs, nullptr, working);
}

void LionStep(const KernelContext& context, const LionScalars& scalars, Tensor gradient, Tensor master, Tensor m,
              Tensor working, const StepControl& control) {
  const char* kernel = "LionStep";
  const int64_t n = master.numel();
  CheckGradient(kernel, gradient, n);
  float *ps = State(kernel, "master", master, n), *ms = State(kernel, "m", m, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::LionStep, context, scalars, gradient, master, m, working, control)) return;
  Run(context, &detail::OptimizerKernels::lion, scalars, control, gradient, ps, ms, nullptr, working);
}

void AdagradStep(const KernelContext& context, const AdagradScalars& scalars, Tensor gradient, Tensor master, Tensor v,
                 Tensor working, const StepControl& control) {
  const char* kernel = "AdagradStep";
  const int64_t n = master.numel();
  CheckGradient(kernel, gradient, n);
  float *ps = State(kernel, "master", master, n), *vs = State(kernel, "v", v, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::AdagradStep, context, scalars, gradient, master, v, working, control)) return;
  Run(context, &detail::OptimizerKernels::adagrad, scalars, control, gradient, ps, vs, nullptr, working);
}

void RmsPropStep(const KernelContext& context, const RmsPropScalars& scalars, Tensor gradient, Tensor master, Tensor v,
                 Tensor buffer, Tensor working, const StepControl& control) {
  const char* kernel = "RmsPropStep";
  const int64_t n = master.numel();
  CheckGradient(kernel, gradient, n);
  float *ps = State(kernel, "master", master, n), *vs = State(kernel, "v", v, n);
  const bool plain = scalars.momentum == 0.0f;
  float* bs = plain ? nullptr : State(kernel, "buffer", buffer, n);
  CheckWorking(kernel, working, n);
  if (detail::RanOnCuda(kernel, cuda::RmsPropStep, context, scalars, gradient, master, v, buffer, working, control))
    return;
  Run(context, &detail::OptimizerKernels::rmsprop, scalars, control, gradient, ps, vs, bs, working);
}

}  // namespace ds
