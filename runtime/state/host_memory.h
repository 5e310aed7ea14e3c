// A page-aligned block of zeroed host memory, in huge pages where the system has them. Pages become resident when they
// are first touched, on the memory node of the thread that does, unless they were placed (kernels/optimizer.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace ds {

class HostMemory {
 public:
  HostMemory() = default;
  /// Throws RuntimeError with the size when the system refuses.
  explicit HostMemory(int64_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  /// Bytes [offset, offset + count) as a tensor of u8. Throws RuntimeError when they are not inside.
  Tensor Bytes(int64_t offset, int64_t count) const;

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace ds
