#include "test/unit/gpu/gpu.h"

#include <cstdlib>

namespace ds::test {

std::string WhyNot() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(status);
  return count > 0 ? "" : "no GPU: the driver reports none";
}

void RequireCuda(cudaError_t status) {
  INFO("CUDA: " << cudaGetErrorString(status));
  REQUIRE(status == cudaSuccess);
}

bool LeftOut(int64_t elements) {
  static const bool quick = std::getenv("DS_TEST_QUICK") != nullptr;
  return quick && elements > 30'000;
}

DeviceBuffer::DeviceBuffer(int64_t bytes, int64_t before) : bytes_(bytes) {
  static const bool poisons = std::getenv("DS_TEST_UNPOISONED") == nullptr;
  RequireCuda(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<size_t>(bytes + kGuard)));
  RequireCuda(cudaMemset(data_, 0xff, static_cast<size_t>(poisons ? bytes : before)));
  RequireCuda(cudaMemset(data_ + bytes, 0xff, kGuard));
  RequireCuda(cudaDeviceSynchronize());  // a context's stream does not wait for what others enqueue
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void DeviceBuffer::Upload(const void* from) const {
  RequireCuda(cudaMemcpy(data_, from, static_cast<size_t>(bytes_), cudaMemcpyHostToDevice));
  RequireCuda(cudaDeviceSynchronize());  // small copies are under way when cudaMemcpy returns
}

void DeviceBuffer::Download(void* to) const {
  RequireCuda(cudaDeviceSynchronize());
  RequireCuda(cudaMemcpy(to, data_, static_cast<size_t>(bytes_), cudaMemcpyDeviceToHost));
  uint8_t guard[kGuard];
  RequireCuda(cudaMemcpy(guard, data_ + bytes_, kGuard, cudaMemcpyDeviceToHost));
  CHECK(std::all_of(guard, guard + kGuard, [](uint8_t byte) { return byte == 0xff; }));
}

GpuArray::GpuArray(const Array& values, int64_t offset) : GpuArray(values.dtype(), values.shape(), offset) {
  std::vector<uint8_t> bytes(static_cast<size_t>(memory_.bytes()), 0xff);
  std::copy_n(values.data(), shape_.numel() * Size(), bytes.data() + offset * Size());
  memory_.Upload(bytes.data());
}

Array GpuArray::Host() const {
  std::vector<uint8_t> bytes(static_cast<size_t>(memory_.bytes()));
  memory_.Download(bytes.data());
  const auto begin = bytes.begin() + offset_ * Size();
  CHECK(std::all_of(bytes.begin(), begin, [](uint8_t byte) { return byte == 0xff; }));
  Array host(dtype_, shape_);
  std::copy(begin, bytes.end(), host.data());
  return host;
}

GpuContext::GpuContext(int64_t workspace_bytes) : workspace_(workspace_bytes) {
  cudaStream_t stream = nullptr;
  RequireCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  context_.stream = stream;
  context_.workspace = workspace_.data();
  context_.workspace_bytes = workspace_bytes;
}

GpuContext::~GpuContext() { cudaStreamDestroy(static_cast<cudaStream_t>(context_.stream)); }

void CheckSame(const Array& got, const Array& want) {
  REQUIRE(got.dtype() == want.dtype());
  REQUIRE(got.size() == want.size());
  size_t wrong = got.size();
  for (size_t i = got.size(); i-- > 0;) {
    const bool same = (std::isnan(got[i]) && std::isnan(want[i])) ||
                      (got[i] == want[i] && std::signbit(got[i]) == std::signbit(want[i]));
    if (!same) wrong = i;
  }
  if (wrong == got.size()) return;
  INFO("element " << wrong << ": got " << got[wrong] << ", want " << want[wrong]);
  CHECK(wrong == got.size());
}

}  // namespace ds::test
