#include "runtime/state/memory.h"

#include <string>
#include <utility>

#include "runtime/base/error.h"

namespace ds {

Memory::Memory(int64_t bytes, Gpu* gpu) : gpu_(gpu), bytes_(bytes) {
  if (bytes == 0) return;
  if (!gpu) {
    host_ = HostMemory(bytes);
    return;
  }
  try {
    data_ = gpu->Allocate(bytes);
  } catch (const std::exception& error) {
    const Gpu::MemoryInfo memory = gpu->Memory();
    throw RuntimeError("cannot allocate " + std::to_string(bytes) + " bytes on " + gpu->name() + ", of which " +
                       std::to_string(memory.free) + " of " + std::to_string(memory.total) +
                       " bytes are free: " + error.what());
  }
}

Memory::~Memory() {
  if (data_) gpu_->Free(data_);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(host_, other.host_);
  std::swap(gpu_, other.gpu_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor Memory::Bytes(int64_t offset, int64_t count) const {
  if (!gpu_) return host_.Bytes(offset, count);
  if (offset < 0 || count < 0 || offset + count > bytes_)
    throw RuntimeError("bytes [" + std::to_string(offset) + ", +" + std::to_string(count) + ") of a block of " +
                       std::to_string(bytes_));
  return Tensor(static_cast<char*>(data_) + offset, DType::u8, Shape{count}, gpu_->device());
}

}  // namespace ds
