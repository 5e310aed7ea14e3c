#include "kernels/gpu.h"

#include <cstring>
#include <stdexcept>

namespace ds {
namespace cuda {

// Defined where ds_gpu is linked (gpu_cuda.cc).
[[gnu::weak]] int Count();
[[gnu::weak]] std::unique_ptr<Gpu> Open(int index);

}  // namespace cuda

bool HasGpuCode() { return cuda::Open != nullptr; }

int GpuCount() { return HasGpuCode() ? cuda::Count() : 0; }

std::unique_ptr<Gpu> OpenGpu(int index) {
  if (!HasGpuCode()) throw std::runtime_error("this program was built without GPU code");
  return cuda::Open(index);
}

void CopyNow(Gpu* gpu, const Tensor& from, const Tensor& to) {
  if (from.dtype != to.dtype || from.numel() != to.numel())
    throw std::invalid_argument("CopyNow: " + std::string(NameOf(from.dtype)) + " " + from.shape.str() + " to " +
                                NameOf(to.dtype) + " " + to.shape.str());
  if (from.numel() == 0) return;
  if (from.device.kind == DeviceKind::cpu && to.device.kind == DeviceKind::cpu) {
    std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
    return;
  }
  if (!gpu) throw std::invalid_argument("CopyNow: a tensor is on a GPU, and no GPU was given");
  gpu->Copy(from.data, to.data, from.bytes(), nullptr);
  gpu->Synchronize(nullptr);
}

}  // namespace ds
