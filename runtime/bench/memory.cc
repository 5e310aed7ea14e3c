#include "runtime/bench/memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernels/parallel.h"
#include "runtime/bench/fit.h"
#include "runtime/train/peak_memory.h"

namespace ds {
namespace {

/// Page-locked memory of a scope.
class PinnedMemory {
 public:
  PinnedMemory(Gpu& gpu, int64_t bytes) : gpu_(gpu), data_(gpu.AllocateHost(bytes)) {}
  ~PinnedMemory() { gpu_.FreeHost(data_); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  Gpu& gpu_;
  void* const data_;
};

/// An array that no cache holds, at most an eighth of what is free.
int64_t CopyBytes(BenchDevice& device) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  if (device.gpu()) return std::min(1024 * kMiB, device.gpu()->Memory().free / 8) / kMiB * kMiB;
  const int64_t cache = std::max<int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0), free = AvailableMemory();
  const int64_t wanted = std::clamp(2 * cache, 64 * kMiB, 256 * kMiB);
  return (free > 0 ? std::min(wanted, free / 8) : wanted) / kMiB * kMiB;
}

}  // namespace

CopyRate MeasureCopy(BenchDevice& device, double seconds) {
  CopyRate rate;
  rate.bytes = CopyBytes(device);
  if (rate.bytes <= 0) return rate;
  const BenchTensor from(device, DType::u8, {rate.bytes}), to(device, DType::u8, {rate.bytes});
  const void* const source = from.tensor().data;
  void* const target = to.tensor().data;
  Timing timing;
  if (device.gpu()) {
    timing = device.Time(seconds, [&] { device.gpu()->Copy(source, target, rate.bytes, device.context().stream); });
  } else {
    constexpr int64_t kBlock = int64_t{1} << 20;  // long enough that the library streams past the caches
    timing = device.Time(seconds, [&] {
      const int64_t part = (rate.bytes / kBlock + device.context().threads - 1) / device.context().threads * kBlock;
      detail::ParallelBlocks(device.context(), rate.bytes, part, [&](int64_t begin, int64_t end) {
        std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                    static_cast<size_t>(end - begin));
      });
    });
  }
  rate.bytes_per_second = 2.0 * static_cast<double>(rate.bytes) / timing.seconds;
  return rate;
}

HostLink MeasureHostLink(BenchDevice& device, bool to_device, double seconds) {
  if (!device.gpu()) throw std::logic_error("a link between host and device, without a device");
  Gpu& gpu = *device.gpu();
  HostLink link;
  link.largest = std::min(int64_t{256} << 20, gpu.Memory().free / 8);
  const PinnedMemory host(gpu, link.largest);
  const BenchTensor memory(device, DType::u8, {link.largest});
  void* const data = memory.tensor().data;
  std::vector<std::pair<double, double>> points;
  const std::vector<int64_t> sizes = {int64_t{4} << 10, int64_t{64} << 10, int64_t{1} << 20, int64_t{16} << 20,
                                      link.largest};
  for (const int64_t bytes : sizes) {
    if (bytes > link.largest) continue;
    const Timing timing = device.Time(seconds / static_cast<double>(sizes.size()), [&] {
      gpu.Copy(to_device ? host.data() : data, to_device ? data : host.data(), bytes, device.context().stream);
    });
    points.emplace_back(static_cast<double>(bytes), timing.seconds);
    link.large_copy = static_cast<double>(bytes) / timing.seconds;
  }
  link.rate = FitLinkRate(points);
  return link;
}

}  // namespace ds
