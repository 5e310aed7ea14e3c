// Optimizers on the GPU: the CPU's bits, denormals included, over several steps; and what they read from device memory.
#include "kernels/optimizer.h"

#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/optimizer_inputs.h"

namespace ds::test {
namespace {

/// Everything that an update reads and writes.
template <class A>
struct State {
  A gradient, master, first, second, working;
};

using Step =
    std::function<void(const KernelContext&, float, Tensor, Tensor, Tensor, Tensor, Tensor, const StepControl&)>;

/// Every update, with the choices that change its arithmetic.
std::vector<std::pair<std::string, Step>> Steps() {
  std::vector<std::pair<std::string, Step>> steps;
  const auto add = [&](const std::string& name, const Step& step) { steps.emplace_back(name, step); };
  for (bool decoupled : {false, true})
    add(decoupled ? "AdamW" : "Adam", [=](auto& context, float scale, auto g, auto p, auto m, auto v, auto w,
                                          auto& control) {
      AdamStep(context, MakeAdamScalars(1e-3, 0.9, 0.95, 1e-8, 0.1, decoupled, true, 3, scale), g, p, m, v, w, control);
    });
  for (float momentum : {0.0f, 0.9f})
    for (bool nesterov : {false, true})
      for (bool first : {false, true})
        add("SGD " + std::to_string(momentum) + (nesterov ? " nesterov" : "") + (first ? " first" : ""),
            [=](auto& context, float scale, auto g, auto p, auto m, auto, auto w, auto& control) {
              SgdStep(context, {scale, 0.1f, momentum, 0.8f, 0.01f, nesterov, first}, g, p, m, w, control);
            });
  add("Lion", [](auto& context, float scale, auto g, auto p, auto m, auto, auto w, auto& control) {
    LionStep(context, {scale, 0.1f, 0.9f, 0.1f, 0.99f, 0.01f, 0.999f}, g, p, m, w, control);
  });
  add("Adagrad", [](auto& context, float scale, auto g, auto p, auto, auto v, auto w, auto& control) {
    AdagradStep(context, {scale, 0.1f, 1e-10f, 0.1f}, g, p, v, w, control);
  });
  for (float momentum : {0.0f, 0.9f})
    add("RMSprop " + std::to_string(momentum),
        [=](auto& context, float scale, auto g, auto p, auto m, auto v, auto w, auto& control) {
          RmsPropStep(context, {scale, 0.1f, 0.99f, 0.01f, 1e-8f, momentum, 0.1f}, g, p, v, m, w, control);
        });
  return steps;
}

State<Array> Start(int64_t n, DType working) {
  return {OptimizerInput(n, 1, 1), OptimizerInput(n, 2, 0.1), OptimizerInput(n, 3, 0.1),
          OptimizerInput(n, 4, 1e-3, true), Array(working, {n})};
}

State<GpuArray> Upload(const State<Array>& s, int64_t offset) {
  return {GpuArray(s.gradient, offset), GpuArray(s.master, offset), GpuArray(s.first, offset),
          GpuArray(s.second, offset), GpuArray(s.working, offset)};
}

void CheckEqual(const State<GpuArray>& got, const State<Array>& want) {
  CheckSame(got.gradient.Host(), want.gradient);
  CheckSame(got.master.Host(), want.master);
  CheckSame(got.first.Host(), want.first);
  CheckSame(got.second.Host(), want.second);
  CheckSame(got.working.Host(), want.working);
}

TEST_CASE("GPU: optimizers have the CPU's bits, denormals included") {
  const GpuContext context;
  for (const auto& [name, step] : Steps())
    for (DType working : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (int64_t n : {1, 7, 50'003})
        for (int64_t offset : {0, 1}) {
          if (LeftOut(n)) continue;
          CAPTURE(name, NameOf(working), n, offset);
          State<Array> cpu = Start(n, working);
          const State<GpuArray> gpu = Upload(cpu, offset);
          for (int i = 0; i < 3; ++i) {
            step({}, 0.3f, cpu.gradient, cpu.master, cpu.first, cpu.second, cpu.working, {});
            step(context, 0.3f, gpu.gradient, gpu.master, gpu.first, gpu.second, gpu.working, {});
          }
          CheckEqual(gpu, cpu);
        }
}

TEST_CASE("GPU: optimizers need no working copy") {
  const GpuContext context;
  for (const auto& [name, step] : Steps()) {
    CAPTURE(name);
    State<Array> cpu = Start(5003, DType::f32);
    const State<GpuArray> gpu = Upload(cpu, 0);
    step({}, 1, cpu.gradient, cpu.master, cpu.first, cpu.second, {}, {});
    step(context, 1, gpu.gradient, gpu.master, gpu.first, gpu.second, {}, {});
    CheckEqual(gpu, cpu);
  }
}

TEST_CASE("GPU: a step takes the gradient's scale from device memory, and does nothing when device memory says so") {
  const GpuContext context;
  const GpuArray scale(Array::Of(DType::f32, {1}, {0.3})), flags(Array::OfInts({2}, {0, 1}));
  const auto* gradient_scale = static_cast<const float*>(scale.tensor().data);
  const auto* flag = static_cast<const int32_t*>(flags.tensor().data);
  for (const auto& [name, step] : Steps()) {
    CAPTURE(name);
    const State<Array> start = Start(5003, DType::bf16);
    State<Array> cpu = start;
    const State<GpuArray> gpu = Upload(start, 0);
    step(context, 1, gpu.gradient, gpu.master, gpu.first, gpu.second, gpu.working, {gradient_scale, flag + 1});
    CheckEqual(gpu, start);
    step(context, 1, gpu.gradient, gpu.master, gpu.first, gpu.second, gpu.working, {gradient_scale, flag});
    step({}, 0.3f, cpu.gradient, cpu.master, cpu.first, cpu.second, cpu.working, {});
    CheckEqual(gpu, cpu);
    CHECK_FALSE(gpu.master.Host() == start.master);
  }
}

}  // namespace
}  // namespace ds::test
