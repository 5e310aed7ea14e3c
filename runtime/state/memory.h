// A block of zeroed memory on one device: pages of the host, or of a GPU.
#pragma once

#include <cstdint>

#include "kernels/gpu.h"
#include "runtime/state/host_memory.h"

namespace ds {

class Memory {
 public:
  Memory() = default;
  /// Of the host; of `gpu`, which outlives the block, where it is not null. Throws RuntimeError with the size when
  /// there is not that much.
  Memory(int64_t bytes, Gpu* gpu);
  /// Of the host; page-locked for `gpu`, which outlives the block, where it is not null.
  static Memory OfHost(int64_t bytes, Gpu* gpu);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  int64_t bytes() const { return bytes_; }
  /// Bytes [offset, offset + count) as a tensor of u8. Throws RuntimeError when they are not inside.
  Tensor Bytes(int64_t offset, int64_t count) const;

 private:
  HostMemory host_;
  Gpu* gpu_ = nullptr;
  bool pinned_ = false;  ///< data_ is of the host
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace ds
