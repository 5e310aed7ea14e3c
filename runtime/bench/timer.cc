#include "runtime/bench/timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <random>

#include "runtime/base/error.h"
#include "runtime/plan/price.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Shortest sample: beside it, the clock's own error is small.
constexpr double kSample = 1e-3;
constexpr int kMostRuns = 200;  ///< of a sample
constexpr int kSamples = 3;     ///< at least, unless the time is over

/// n numbers between -1 and 1; of integers, zeros.
template <class T>
void Randomize(void* memory, size_t n) {
  std::minstd_rand generator(1);
  T* const elements = static_cast<T*>(memory);
  for (size_t i = 0; i < n; ++i) elements[i] = static_cast<T>(static_cast<float>(generator()) * 0x1p-30f - 1.0f);
}

void Randomize(DType dtype, void* memory, size_t n) {
  switch (dtype) {
    case DType::f64:
      return Randomize<double>(memory, n);
    case DType::f32:
      return Randomize<float>(memory, n);
    case DType::bf16:
      return Randomize<bf16>(memory, n);
    case DType::f16:
      return Randomize<f16>(memory, n);
    default:
      std::memset(memory, 0, n * SizeOf(dtype));
  }
}

/// `bytes` of `period` again and again, on the device or the host.
void Repeat(BenchDevice& device, const std::vector<uint8_t>& period, const Tensor& to) {
  const int64_t bytes = to.bytes(), step = static_cast<int64_t>(period.size());
  for (int64_t at = 0; at < bytes; at += step) {
    uint8_t* const place = static_cast<uint8_t*>(to.data) + at;
    const int64_t count = std::min(step, bytes - at);
    if (device.gpu())
      device.gpu()->Copy(period.data(), place, count, device.context().stream);
    else
      std::memcpy(place, period.data(), static_cast<size_t>(count));
  }
  device.Finish();  // the period is the host's
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

BenchDevice::BenchDevice(Gpu* gpu, int threads, int64_t workspace) : gpu_(gpu) {
  context_.threads = threads;
  if (!gpu_) return;
  gpu_->Use();
  stream_ = GpuStream(*gpu_);
  begin_ = GpuEvent(*gpu_, true), end_ = GpuEvent(*gpu_, true);
  if (workspace > 0) workspace_ = gpu_->Allocate(workspace);
  context_.stream = stream_.get();
  context_.workspace = workspace_;
  context_.workspace_bytes = workspace;
}

BenchDevice::~BenchDevice() {
  if (workspace_) gpu_->Free(workspace_);
}

KernelContext BenchDevice::Loose() const {
  KernelContext context = context_;
  context.deterministic = false;
  return context;
}

void BenchDevice::Finish() {
  if (gpu_) gpu_->Synchronize(context_.stream);
}

double BenchDevice::Sample(int runs, const std::function<void()>& body) {
  if (!gpu_) {
    const auto begin = Clock::now();
    for (int run = 0; run < runs; ++run) body();
    return SecondsSince(begin) / runs;
  }
  gpu_->Record(begin_.get(), context_.stream);
  for (int run = 0; run < runs; ++run) body();
  gpu_->Record(end_.get(), context_.stream);
  gpu_->Synchronize(context_.stream);
  return gpu_->Seconds(begin_.get(), end_.get()) / runs;
}

Timing BenchDevice::Time(double seconds, const std::function<void()>& body) {
  body();  // loads code, chooses algorithms, takes page faults: it tells nothing of how long a run is
  Finish();
  const auto begin = Clock::now();
  const double once = std::max(Sample(1, body), 1e-9);
  const int runs = static_cast<int>(std::clamp(std::ceil(kSample / once), 1.0, static_cast<double>(kMostRuns)));
  std::vector<double> samples;
  if (runs == 1) samples.push_back(once);
  while (samples.empty() || (static_cast<int>(samples.size()) < kMostSamples && SecondsSince(begin) < seconds) ||
         (static_cast<int>(samples.size()) < kSamples && SecondsSince(begin) < 2 * seconds))
    samples.push_back(Sample(runs, body));
  return {Median(samples), static_cast<int>(samples.size())};
}

BenchTensor::BenchTensor(BenchDevice& device, DType dtype, Shape shape)
    : gpu_(device.gpu()), tensor_(nullptr, dtype, shape, device.device()) {
  constexpr int64_t kPeriod = 999'983;  // a prime: no two rows are alike
  const int64_t bytes = std::max<int64_t>(tensor_.bytes(), 1);
  if (gpu_) {
    tensor_.data = gpu_->Allocate(bytes);
  } else {
    tensor_.data = ::operator new (static_cast<size_t>(bytes), std::align_val_t{4096}, std::nothrow);
    if (!tensor_.data) throw RuntimeError("no memory for " + FormatBytes(bytes) + " to measure with");
  }
  std::vector<uint8_t> period(static_cast<size_t>(std::min(shape.numel(), kPeriod)) * SizeOf(dtype));
  Randomize(dtype, period.data(), period.size() / SizeOf(dtype));
  if (!period.empty()) Repeat(device, period, tensor_);
}

BenchTensor::BenchTensor(BenchTensor&& other) noexcept : gpu_(other.gpu_), tensor_(other.tensor_) {
  other.tensor_.data = nullptr;
}

BenchTensor::~BenchTensor() {
  if (!tensor_.data) return;
  if (gpu_)
    gpu_->Free(tensor_.data);
  else
    ::operator delete (tensor_.data, std::align_val_t{4096});
}

void FillTokens(BenchDevice& device, const Tensor& tokens, int32_t below) {
  std::vector<uint8_t> period(static_cast<size_t>(std::min<int64_t>(tokens.numel(), 99'991)) * sizeof(int32_t));
  std::minstd_rand generator(1);
  for (size_t at = 0; at < period.size(); at += sizeof(int32_t)) {
    const auto token = static_cast<int32_t>(generator() % static_cast<uint32_t>(below));
    std::memcpy(period.data() + at, &token, sizeof token);
  }
  if (!period.empty()) Repeat(device, period, tokens);
}

}  // namespace ds
