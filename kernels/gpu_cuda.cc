// The GPU by the CUDA runtime.
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <memory>
#include <string>

#include "kernels/cuda_check.h"
#include "kernels/gpu.h"

namespace ds::cuda {
namespace {

cudaStream_t AsStream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t AsEvent(void* event) { return static_cast<cudaEvent_t>(event); }

class CudaGpu : public Gpu {
 public:
  explicit CudaGpu(int index) : index_(index) {
    Use();
    cudaDeviceProp properties;
    CheckCuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    name_ = properties.name;
    multiplies_fp8_ = 10 * properties.major + properties.minor >= 89;  // Ada, Hopper and what came after
  }

  Device device() const override { return {DeviceKind::cuda, index_}; }
  std::string name() const override { return name_; }
  bool MultipliesFp8() const override { return multiplies_fp8_; }
  void Use() override { CheckCuda(cudaSetDevice(index_), "cudaSetDevice"); }

  MemoryInfo Memory() override {
    size_t free = 0, total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }
  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    CheckCuda(cudaMalloc(&memory, static_cast<size_t>(bytes)),
              ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
    CheckCuda(cudaMemset(memory, 0, static_cast<size_t>(bytes)), "cudaMemset");
    CheckCuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    return memory;
  }
  void Free(void* memory) noexcept override { cudaFree(memory); }
  void* AllocateHost(int64_t bytes) override {
    void* memory = nullptr;
    CheckCuda(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocDefault),
              ("cudaHostAlloc of " + std::to_string(bytes) + " bytes").c_str());
    std::memset(memory, 0, static_cast<size_t>(bytes));
    return memory;
  }
  void FreeHost(void* memory) noexcept override { cudaFreeHost(memory); }

  void* NewStream() override {
    cudaStream_t stream = nullptr;
    CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }
  void DeleteStream(void* stream) noexcept override { cudaStreamDestroy(AsStream(stream)); }
  void* NewEvent(bool timed) override {
    cudaEvent_t event = nullptr;
    CheckCuda(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
              "cudaEventCreateWithFlags");
    return event;
  }
  void DeleteEvent(void* event) noexcept override { cudaEventDestroy(AsEvent(event)); }
  void Record(void* event, void* stream) override {
    CheckCuda(cudaEventRecord(AsEvent(event), AsStream(stream)), "cudaEventRecord");
  }
  void Wait(void* stream, void* event) override {
    CheckCuda(cudaStreamWaitEvent(AsStream(stream), AsEvent(event), 0), "cudaStreamWaitEvent");
  }
  bool Done(void* event) override {
    const cudaError_t status = cudaEventQuery(AsEvent(event));
    if (status == cudaErrorNotReady) return false;
    CheckCuda(status, "cudaEventQuery");
    return true;
  }
  double Seconds(void* begin, void* end) override {
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, AsEvent(begin), AsEvent(end)), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }
  void Synchronize(void* stream) override {
    CheckCuda(cudaStreamSynchronize(AsStream(stream)), "cudaStreamSynchronize");
  }

  void Copy(const void* from, void* to, int64_t bytes, void* stream) override {
    CheckCuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, AsStream(stream)),
              "cudaMemcpyAsync");
  }
  void Set(void* memory, uint8_t value, int64_t bytes, void* stream) override {
    CheckCuda(cudaMemsetAsync(memory, value, static_cast<size_t>(bytes), AsStream(stream)), "cudaMemsetAsync");
  }

  void BeginRange(const char* name) override { nvtxRangePushA(name); }
  void EndRange() override { nvtxRangePop(); }

 private:
  const int index_;
  std::string name_;
  bool multiplies_fp8_ = false;
};

}  // namespace

int Count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::unique_ptr<Gpu> Open(int index) {
  int count = 0;
  CheckCuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (index < 0 || index >= count)
    throw std::runtime_error("there is no GPU " + std::to_string(index) + " among the " + std::to_string(count) +
                             " that this process may use");
  return std::make_unique<CudaGpu>(index);
}

}  // namespace ds::cuda
