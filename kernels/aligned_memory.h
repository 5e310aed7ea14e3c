// Scratch memory aligned to a cache line. Internal to the CPU kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace ds::detail {

constexpr std::align_val_t kAlignment{64};

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeAligned>;

inline AlignedMemory AllocateAligned(int64_t bytes) {
  return AlignedMemory(static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
}

}  // namespace ds::detail
