#include "runtime/exec/gpu_step_memory.h"

#include <cstring>
#include <string>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/exec/step_facts.h"
#include "runtime/plan/executor_memory.h"

namespace ds {
namespace {

/// Cuts tensors off a block, each aligned to kExecutorAlignment. Without a block it only counts.
class Carver {
 public:
  explicit Carver(Tensor block = {}) : block_(block) {}
  Tensor Take(DType dtype, Shape shape) {
    const int64_t at = used_, bytes = shape.numel() * static_cast<int64_t>(SizeOf(dtype));
    used_ += (bytes + kExecutorAlignment - 1) / kExecutorAlignment * kExecutorAlignment;
    if (!block_) return {};
    return Tensor(block_.Flat(at, bytes).data, dtype, shape, block_.device);
  }
  int64_t used() const { return used_; }

 private:
  const Tensor block_;
  int64_t used_ = 0;
};

}  // namespace

GpuStepMemory::GpuStepMemory(const ModelLayout& layout, const Plan& plan, MicroBatchShape shape, Gpu& gpu)
    : gpu_(gpu), shape_(shape), memory_(ExecutorBytes(layout, plan.options), &gpu) {
  const int64_t width = static_cast<int64_t>(layout.units.size()) + kNormFacts;
  const int64_t micro_batches = MicroBatchesOf(plan.options);
  Carver device(memory_.Bytes(0, memory_.bytes()));
  for (int64_t m = 0; m < micro_batches; ++m) {
    tokens.push_back(device.Take(DType::i32, Shape{shape.samples, shape.tokens}));
    targets.push_back(device.Take(DType::i32, Shape{shape.samples, shape.tokens}));
    if (ReadsFirstKeys(layout)) first_key.push_back(device.Take(DType::i32, Shape{shape.samples, shape.tokens}));
  }
  losses = device.Take(DType::f64, Shape{micro_batches});
  facts = device.Take(DType::f64, Shape{width});
  gathered = device.Take(DType::f64, Shape{plan.options.world() * width});
  gradient_scale = device.Take(DType::f32, Shape{1});
  skip = device.Take(DType::i32, Shape{1});
  if (device.used() != memory_.bytes())
    throw RuntimeError("an executor lays out " + std::to_string(device.used()) + " bytes, and the plan counted " +
                       std::to_string(memory_.bytes()));

  const auto take_host = [&](Carver& carver) {
    const int64_t parts = first_key.empty() ? 2 : 3;
    host_batches_ = carver.Take(DType::i32, Shape{parts * micro_batches, shape.samples, shape.tokens});
    host_losses = carver.Take(DType::f64, losses.shape);
    host_gathered = carver.Take(DType::f64, gathered.shape);
    host_skip = carver.Take(DType::i32, skip.shape);
    host_scale = carver.Take(DType::f32, gradient_scale.shape);
  };
  Carver count;
  take_host(count);
  pinned_ = {gpu.AllocateHost(count.used()), [&gpu](void* memory) { gpu.FreeHost(memory); }};
  Carver host(Tensor(pinned_.get(), DType::u8, Shape{count.used()}));
  take_host(host);
}

void GpuStepMemory::Upload(const std::vector<MicroBatch>& micro_batches, void* stream) {
  const int64_t numel = shape_.samples * shape_.tokens;
  for (size_t m = 0; m < micro_batches.size(); ++m) {
    const MicroBatch& batch = micro_batches[m];
    std::vector<std::pair<Tensor, Tensor>> parts = {{batch.tokens, tokens[m]}, {batch.targets, targets[m]}};
    if (!first_key.empty()) parts.emplace_back(batch.first_key, first_key[m]);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto& [from, to] = parts[i];
      if (from.numel() != numel || !from)
        throw RuntimeError("micro-batch " + std::to_string(m) + " has " + std::to_string(from ? from.numel() : 0) +
                           (i == 0   ? " tokens"
                            : i == 1 ? " targets"
                                     : " first keys") +
                           ", expected " + std::to_string(numel));
      const Tensor staged = host_batches_.Flat(static_cast<int64_t>(m * parts.size() + i) * numel, numel);
      std::memcpy(staged.data, from.data, static_cast<size_t>(from.bytes()));
      gpu_.Copy(staged.data, to.data, staged.bytes(), stream);
    }
  }
}

}  // namespace ds
