#include "runtime/bench/library_memory.h"

#include <functional>
#include <memory>

#include "kernels/matmul.h"
#include "runtime/base/error.h"
#include "runtime/base/nvml.h"
#include "runtime/bench/kernels.h"
#include "runtime/bench/row_kernels.h"
#include "runtime/bench/timer.h"
#include "runtime/bench/work.h"

namespace ds {
namespace {

int64_t UsedBytes(int gpu) {
  const std::vector<GpuFacts> gpus = VisibleGpus();
  if (gpu < 0 || static_cast<size_t>(gpu) >= gpus.size())
    throw RuntimeError("the driver's library libnvidia-ml does not tell how much memory GPU " + std::to_string(gpu) +
                       " uses");
  return gpus[static_cast<size_t>(gpu)].memory_used;
}

/// The products of training in 16 bits and in fp32, small ones.
void Multiply(BenchDevice& device) {
  constexpr int64_t kSize = 1024;
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        const BenchTensor a(device, dtype, {kSize, kSize}), b(device, dtype, {kSize, kSize});
        const BenchTensor c(device, DType::f32, {kSize, kSize});
        MatMulOptions options;
        options.transpose_a = transpose_a, options.transpose_b = transpose_b;
        MatMul(device.context(), a, b, c, options);
        device.Finish();
      }
}

/// Heads of 64 in bf16: cuDNN's kernels, where it has them.
void Attend(BenchDevice& device) {
  const AttentionShape s{1, 1024, 12, 12, 64};
  const BenchTensor qkv(device, DType::bf16, {s.batch, s.tokens, 3 * s.heads, s.head_size});
  const BenchTensor dqkv(device, DType::bf16, {s.batch, s.tokens, 3 * s.heads, s.head_size});
  const BenchTensor out(device, DType::bf16, {s.batch, s.tokens, s.heads * s.head_size});
  const BenchTensor dout(device, DType::bf16, {s.batch, s.tokens, s.heads * s.head_size});
  const BenchTensor log_sum_exp(device, DType::f32, {s.batch, s.heads, s.tokens});
  AttentionForward(device.context(), s, qkv, {}, out, log_sum_exp);
  AttentionBackward(device.context(), s, dout, qkv, out, log_sum_exp, {}, dqkv);
  device.Finish();
}

}  // namespace

LibraryUse MeasureLibraryMemory(int gpu, int threads) {
  LibraryUse use;
  int64_t last = use.before = UsedBytes(gpu);
  std::unique_ptr<Gpu> opened;
  const BenchWork work = WorkOfPreset("gpt2-124m", DeviceKind::cuda);
  const auto part = [&](const char* name, const std::function<void(BenchDevice&)>& load) {
    {
      BenchDevice device(opened.get(), threads, WorkspaceOf(work));
      load(device);
    }
    const int64_t now = UsedBytes(gpu);
    use.parts.emplace_back(name, now - last);
    last = now;
  };
  opened = OpenGpu(gpu);
  part("context", [](BenchDevice&) {});
  part("kernels", [&](BenchDevice& device) {
    for (const RowKernel& kernel : RowKernelsOf(work, DeviceKind::cuda)) kernel.time(device, 0);
  });
  part("cuBLASLt", Multiply);
  part("cuDNN", Attend);
  return use;
}

}  // namespace ds
