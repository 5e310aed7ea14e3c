// What the GPU tests share: arrays on the device, and where kernels run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "test/unit/kernels/support.h"

namespace ds::test {

/// Fails the test case unless status is success.
void RequireCuda(cudaError_t status);

/// Whether a case whose tensors have so many elements is left out: where DS_TEST_QUICK is set. compute-sanitizer slows
/// kernels down a hundredfold, and small shapes run all of them.
bool LeftOut(int64_t elements);

/// Device memory with guard bytes behind it. New memory is poisoned: every byte 0xff, which is NaN in every floating
/// dtype. Where DS_TEST_UNPOISONED is set only the guard and the first `before` bytes are: initcheck then finds what is
/// read before it was written.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes, int64_t before = 0);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void Upload(const void* from) const;
  /// Waits for the device first. Checks the guard bytes.
  void Download(void* to) const;

 private:
  static constexpr int64_t kGuard = 256;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// A tensor on the GPU. `offset` elements precede it, so that kernels meet addresses that are not multiples of 16
/// bytes.
class GpuArray {
 public:
  /// Poisoned.
  GpuArray(DType dtype, Shape shape, int64_t offset = 0)
      : dtype_(dtype), shape_(shape), offset_(offset), memory_((shape.numel() + offset) * Size(), offset * Size()) {}
  /// With the values of a host array.
  explicit GpuArray(const Array& values, int64_t offset = 0);

  Tensor tensor() const {
    return Tensor(memory_.data() + offset_ * Size(), dtype_, shape_, Device{DeviceKind::cuda, 0});
  }
  operator Tensor() const { return tensor(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  /// A copy in host memory. Waits for the device first; checks that nothing was written before or behind the array.
  Array Host() const;

 private:
  int64_t Size() const { return static_cast<int64_t>(SizeOf(dtype_)); }

  DType dtype_;
  Shape shape_;
  int64_t offset_;
  DeviceBuffer memory_;
};

/// A context on a stream of its own with a workspace of `bytes` bytes, poisoned.
class GpuContext {
 public:
  explicit GpuContext(int64_t workspace_bytes = 0);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;
  operator const KernelContext&() const { return context_; }

 private:
  DeviceBuffer workspace_;
  KernelContext context_;
};

/// Same bits, where any NaN equals any other: what arithmetic makes of NaN differs between devices.
void CheckSame(const Array& got, const Array& want);

}  // namespace ds::test
