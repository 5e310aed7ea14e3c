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

Memory Memory::OfHost(int64_t bytes, Gpu* gpu) {
  Memory memory;
  if (!gpu || bytes == 0) return Memory(bytes, nullptr);
  memory.gpu_ = gpu;
  memory.bytes_ = bytes;
  memory.pinned_ = true;
  try {
    memory.data_ = gpu->AllocateHost(bytes);
  } catch (const std::exception& error) {
    throw RuntimeError("cannot allocate " + std::to_string(bytes) + " bytes of page-locked host memory: " +
                       error.what() + "; see ulimit -l and the memory that the node has, or offload less to the CPU");
  }
  return memory;
}

Memory::~Memory() {
  if (!data_) return;
  if (pinned_)
    gpu_->FreeHost(data_);
  else
    gpu_->Free(data_);
}

Memory::Memory(Memory&& other) noexcept { *this = std::move(other); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(host_, other.host_);
  std::swap(gpu_, other.gpu_);
  std::swap(pinned_, other.pinned_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor Memory::Bytes(int64_t offset, int64_t count) const {
  if (!gpu_) return host_.Bytes(offset, count);
  if (offset < 0 || count < 0 || offset + count > bytes_)
    throw RuntimeError("bytes [" + std::to_string(offset) + ", +" + std::to_string(count) + ") of a block of " +
                       std::to_string(bytes_));
  return Tensor(static_cast<char*>(data_) + offset, DType::u8, Shape{count}, pinned_ ? Device{} : gpu_->device());
}

}  // namespace ds
