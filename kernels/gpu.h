// The GPU of this process as the runtime sees it: memory, streams, events, copies. An interface, so that programs
// without GPU code link, and so that a test may run what is made for GPUs on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "kernels/tensor.h"

namespace ds {

/// Calls throw std::runtime_error that names the CUDA function and its error. An error of work that was enqueued before
/// may surface in any call. Used by one thread at a time unless said otherwise; `stream` and `event` are what NewStream
/// and NewEvent return.
class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual Device device() const = 0;
  virtual std::string name() const = 0;
  /// Whether its library has products of 8-bit numbers (fp8.h).
  virtual bool MultipliesFp8() const = 0;
  /// Makes it the GPU of the calling thread. The thread that opened it has it already.
  virtual void Use() = 0;

  struct MemoryInfo {
    int64_t free = 0, total = 0;  ///< bytes of the whole device, whoever uses it
  };
  virtual MemoryInfo Memory() = 0;
  /// `bytes` > 0 of device memory, aligned to 256 bytes, zeroed.
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory) noexcept = 0;
  /// The same of page-locked host memory, which copies reach without a detour.
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* memory) noexcept = 0;

  /// A stream that waits for no other on its own.
  virtual void* NewStream() = 0;
  virtual void DeleteStream(void* stream) noexcept = 0;
  /// timed: Seconds() may be asked of it.
  virtual void* NewEvent(bool timed) = 0;
  virtual void DeleteEvent(void* event) noexcept = 0;
  virtual void Record(void* event, void* stream) = 0;
  /// What is enqueued on `stream` from here on runs after what the event was last recorded behind.
  virtual void Wait(void* stream, void* event) = 0;
  /// Whether all work before the event is done. Never blocks.
  virtual bool Done(void* event) = 0;
  /// Between two timed events that are done.
  virtual double Seconds(void* begin, void* end) = 0;
  virtual void Synchronize(void* stream) = 0;

  /// Enqueues a copy; either side is memory of this GPU or of the host. Copies to and from host memory that is not
  /// page-locked may block.
  virtual void Copy(const void* from, void* to, int64_t bytes, void* stream) = 0;
  /// Enqueues that every byte becomes `value`.
  virtual void Set(void* memory, uint8_t value, int64_t bytes, void* stream) = 0;

  /// Names the work that is enqueued between Begin and End in profilers (NVTX).
  virtual void BeginRange(const char* name) = 0;
  virtual void EndRange() = 0;
};

/// GPUs that this process may use; 0 as well where this program has no GPU code or the machine no driver.
int GpuCount();
/// Opens one of them, by its place in CUDA_VISIBLE_DEVICES. Throws std::runtime_error that says why not.
std::unique_ptr<Gpu> OpenGpu(int index);
/// Whether this program has GPU code at all.
bool HasGpuCode();

/// A copy between any two places, done when it returns. Same dtype and number of elements; `gpu` may be null when both
/// are host memory.
void CopyNow(Gpu* gpu, const Tensor& from, const Tensor& to);

/// A stream or event of a GPU, deleted with this.
class GpuStream {
 public:
  GpuStream() = default;
  explicit GpuStream(Gpu& gpu) : gpu_(&gpu), handle_(gpu.NewStream()) {}
  GpuStream(GpuStream&& other) noexcept { std::swap(gpu_, other.gpu_), std::swap(handle_, other.handle_); }
  GpuStream& operator=(GpuStream&& other) noexcept {
    std::swap(gpu_, other.gpu_), std::swap(handle_, other.handle_);
    return *this;
  }
  ~GpuStream() {
    if (gpu_) gpu_->DeleteStream(handle_);
  }
  void* get() const { return handle_; }

 private:
  Gpu* gpu_ = nullptr;
  void* handle_ = nullptr;
};

class GpuEvent {
 public:
  GpuEvent() = default;
  GpuEvent(Gpu& gpu, bool timed) : gpu_(&gpu), handle_(gpu.NewEvent(timed)) {}
  GpuEvent(GpuEvent&& other) noexcept { std::swap(gpu_, other.gpu_), std::swap(handle_, other.handle_); }
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(gpu_, other.gpu_), std::swap(handle_, other.handle_);
    return *this;
  }
  ~GpuEvent() {
    if (gpu_) gpu_->DeleteEvent(handle_);
  }
  void* get() const { return handle_; }

 private:
  Gpu* gpu_ = nullptr;
  void* handle_ = nullptr;
};

}  // namespace ds
