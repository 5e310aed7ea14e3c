#include "runtime/segments/rope_tables.h"

#include <map>
#include <mutex>
#include <tuple>

#include "kernels/rope.h"

namespace ds {

RopeTables::RopeTables(double theta, int64_t positions, int64_t head_size, DType dtype)
    : bytes_(2 * positions * (head_size / 2) * SizeOf(dtype)), dtype_(dtype), shape_{positions, head_size / 2} {
  RopeTable(theta, cos(), sin());
}

Tensor RopeTables::View(size_t begin) const {
  return Tensor(const_cast<unsigned char*>(bytes_.data()) + begin, dtype_, shape_);
}

std::shared_ptr<const RopeTables> SharedRopeTables(double theta, int64_t positions, int64_t head_size, DType dtype) {
  using Key = std::tuple<double, int64_t, int64_t, DType>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const RopeTables>> tables;
  std::lock_guard lock(mutex);
  std::weak_ptr<const RopeTables>& entry = tables[Key(theta, positions, head_size, dtype)];
  std::shared_ptr<const RopeTables> shared = entry.lock();
  if (!shared) entry = shared = std::make_shared<RopeTables>(theta, positions, head_size, dtype);
  return shared;
}

}  // namespace ds
