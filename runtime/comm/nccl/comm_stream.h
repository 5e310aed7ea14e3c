// The CUDA stream of a communicator. How far it has come is counted where the host can read it without asking CUDA,
// which may not answer while another thread waits in it for room to enqueue more: just when a hung stream must be
// looked at.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace ds {

class CommStream {
 public:
  /// A new non-blocking stream of the current device, of the highest priority: others wait for what is on it.
  CommStream();
  ~CommStream();
  CommStream(const CommStream&) = delete;
  CommStream& operator=(const CommStream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// Device memory of the stream's own, for one int32.
  int32_t* scratch() const { return scratch_; }

  /// Enqueues that the count becomes `number`, once the work before is done. Numbers rise by one, modulo 2^32, from 1.
  void Mark(uint32_t number);
  /// The stream has come past the mark. Any thread.
  bool Past(uint32_t number) const {
    return static_cast<int32_t>(std::atomic_ref<uint32_t>(*count_).load(std::memory_order_acquire) - number) >= 0;
  }

  /// Frees nothing: the GPU may use all of it for ever.
  void Leak() { leaked_ = true; }

 private:
  using WriteValue = int (*)(cudaStream_t, unsigned long long address, uint32_t value, unsigned int flags);

  void Free();

  WriteValue write_value_ = nullptr;  ///< cuStreamWriteValue32
  cudaStream_t stream_ = nullptr;
  uint32_t* count_ = nullptr;  ///< in pinned host memory
  int32_t* scratch_ = nullptr;
  bool leaked_ = false;
};

}  // namespace ds
