#include "kernels/cuda_elementwise.h"
#include "kernels/optimizer.h"
#include "kernels/optimizer_math.h"

namespace ds::cuda {
namespace {

/// One element's update with `States` optimizer states; `W` is the type of the working copy.
template <class Scalars, int States, class W>
struct StepElements {
  Scalars scalars;
  StepControl control;
  const float* gradient;
  float *master, *state[States > 0 ? States : 1];
  W* working;

  template <int N>
  __device__ void Apply(int64_t i) const {
    if (control.skip && *control.skip != 0) return;
    Scalars s = scalars;
    if (control.gradient_scale) s.gradient_scale = *control.gradient_scale;
    const Pack<float, N> g = LoadRaw<N>(gradient + i);
    Pack<float, N> p = LoadRaw<N>(master + i), states[States > 0 ? States : 1];
#pragma unroll
    for (int k = 0; k < States; ++k) states[k] = LoadRaw<N>(state[k] + i);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (States == 0)
        detail::Update(s, g[k], p[k]);
      else if constexpr (States == 1)
        detail::Update(s, g[k], p[k], states[0][k]);
      else
        detail::Update(s, g[k], p[k], states[0][k], states[1][k]);
    }
    StoreRaw(master + i, p);
#pragma unroll
    for (int k = 0; k < States; ++k) StoreRaw(state[k] + i, states[k]);
    if (working) Store(working + i, p);
  }
};

template <int States, class Scalars>
void Step(const KernelContext& context, const char* kernel, const Scalars& s, Tensor gradient, Tensor master,
          Tensor state0, Tensor state1, Tensor working, const StepControl& control) {
  const bool aligned = Aligned(gradient.data, master.data, States > 0 ? state0.data : nullptr,
                               States > 1 ? state1.data : nullptr, working.data);
  DispatchFloating(working ? working.dtype : DType::f32, kernel, [&](auto type) {
    using W = decltype(type);
    StepElements<Scalars, States, W> step{
        s, control, Elements<float>(gradient), Elements<float>(master), {}, Elements<W>(working)};
    if constexpr (States > 0) step.state[0] = Elements<float>(state0);
    if constexpr (States > 1) step.state[1] = Elements<float>(state1);
    ForEachElement(context, kernel, master.numel(), aligned, step);
  });
}

}  // namespace

void AdamStep(const KernelContext& context, const AdamScalars& s, Tensor gradient, Tensor master, Tensor m, Tensor v,
              Tensor working, const StepControl& control) {
  Step<2>(context, "AdamStep", s, gradient, master, m, v, working, control);
}

void SgdStep(const KernelContext& context, const SgdScalars& s, Tensor gradient, Tensor master, Tensor buffer,
             Tensor working, const StepControl& control) {
  if (s.momentum == 0.0f)
    Step<0>(context, "SgdStep", s, gradient, master, {}, {}, working, control);
  else
    Step<1>(context, "SgdStep", s, gradient, master, buffer, {}, working, control);
}

void LionStep(const KernelContext& context, const LionScalars& s, Tensor gradient, Tensor master, Tensor m,
              Tensor working, const StepControl& control) {
  Step<1>(context, "LionStep", s, gradient, master, m, {}, working, control);
}

void AdagradStep(const KernelContext& context, const AdagradScalars& s, Tensor gradient, Tensor master, Tensor v,
                 Tensor working, const StepControl& control) {
  Step<1>(context, "AdagradStep", s, gradient, master, v, {}, working, control);
}

void RmsPropStep(const KernelContext& context, const RmsPropScalars& s, Tensor gradient, Tensor master, Tensor v,
                 Tensor buffer, Tensor working, const StepControl& control) {
  if (s.momentum == 0.0f)
    Step<1>(context, "RmsPropStep", s, gradient, master, v, {}, working, control);
  else
    Step<2>(context, "RmsPropStep", s, gradient, master, v, buffer, working, control);
}

}  // namespace ds::cuda
