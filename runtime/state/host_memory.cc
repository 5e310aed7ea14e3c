#include "runtime/state/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace ds {

HostMemory::HostMemory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* map = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw SystemError("cannot allocate " + std::to_string(bytes) + " bytes of host memory", errno);
  data_ = static_cast<char*>(map);
  // Advice, so a failure is of no consequence: fewer page faults, and fewer misses of the translation buffers.
  ::madvise(map, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

HostMemory::~HostMemory() {
  if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor HostMemory::Bytes(int64_t offset, int64_t count) const {
  if (offset < 0 || count < 0 || offset + count > bytes_)
    throw RuntimeError("bytes [" + std::to_string(offset) + ", +" + std::to_string(count) + ") of a block of " +
                       std::to_string(bytes_));
  return Tensor(data_ + offset, DType::u8, Shape{count});
}

}  // namespace ds
