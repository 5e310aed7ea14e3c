#include "runtime/segments/rope_tables.h"

#include <map>
#include <mutex>
#include <tuple>

#include "kernels/rope.h"

namespace ds {

RopeTables::RopeTables(double theta, int64_t positions, int64_t head_size, DType dtype, Gpu* gpu) {
  const Shape shape{positions, head_size / 2};
  const Tensor one(nullptr, dtype, shape);
  host_.resize(static_cast<size_t>(2 * one.bytes()));
  const auto views = [&](void* memory, Device device) {
    cos_ = Tensor(memory, dtype, shape, device);
    sin_ = Tensor(static_cast<char*>(memory) + one.bytes(), dtype, shape, device);
  };
  views(host_.data(), {});
  RopeTable(theta, cos_, sin_);
  if (!gpu || host_.empty()) return;
  device_ = {gpu->Allocate(2 * one.bytes()), [gpu](void* memory) { gpu->Free(memory); }};
  const Tensor cos = cos_, sin = sin_;
  views(device_.get(), gpu->device());
  CopyNow(gpu, cos, cos_);
  CopyNow(gpu, sin, sin_);
  host_ = {};
}

std::shared_ptr<const RopeTables> SharedRopeTables(double theta, int64_t positions, int64_t head_size, DType dtype,
                                                   Gpu* gpu) {
  using Key = std::tuple<double, int64_t, int64_t, DType, Gpu*>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const RopeTables>> tables;
  std::lock_guard lock(mutex);
  std::weak_ptr<const RopeTables>& entry = tables[Key(theta, positions, head_size, dtype, gpu)];
  std::shared_ptr<const RopeTables> shared = entry.lock();
  if (!shared) entry = shared = std::make_shared<RopeTables>(theta, positions, head_size, dtype, gpu);
  return shared;
}

}  // namespace ds
