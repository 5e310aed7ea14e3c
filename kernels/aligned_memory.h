// Scratch memory aligned to a cache line. Internal to the CPU kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ds::detail {

constexpr std::align_val_t kAlignment{64};

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
};
using AlignedMemory = std::unique_ptr<std::byte, FreeAligned>;

inline AlignedMemory AllocateAligned(int64_t bytes) {
  return AlignedMemory(static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment)));
}

/// Asks for huge pages where [p, p + bytes) covers some whole: fewer misses of the translation buffers, which under
/// virtual machines cost two walks each. Only advice: nothing happens where the system has none.
inline void AdviseHugePages([[maybe_unused]] void* p, [[maybe_unused]] int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(p) + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(bytes)) / kHuge * kHuge;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace ds::detail
