// Promise: a time is the median of repeats behind a warm-up, on CPU threads and by a GPU's events alike.
#include "runtime/bench/timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "runtime/bench/memory.h"
#include "runtime/bench/peaks.h"
#include "test/catch.h"
#include "test/layout/fake_gpu.h"

namespace ds {

TEST_CASE("the median is the middle, or the mean of two") {
  CHECK(Median({}) == 0);
  CHECK(Median({3}) == 3);
  CHECK(Median({9, 1, 2}) == 2);
  CHECK(Median({4, 1, 2, 100}) == 3);
}

TEST_CASE("the warm-up and a hiccup do not count") {
  const std::unique_ptr<Gpu> gpu = layout_test::MakeFakeGpu();
  for (Gpu* device_gpu : {static_cast<Gpu*>(nullptr), gpu.get()}) {
    BenchDevice device(device_gpu, 1, 1024);
    int runs = 0;
    const Timing timing = device.Time(0.15, [&] {
      ++runs;
      const auto pause = runs == 1 || runs == 3 ? std::chrono::milliseconds(60) : std::chrono::milliseconds(4);
      std::this_thread::sleep_for(pause);
    });
    CHECK(timing.samples == runs - 1);
    CHECK(timing.samples >= 3);
    CHECK(timing.seconds >= 0.004);
    CHECK(timing.seconds < 0.06);
  }
}

TEST_CASE("what takes nanoseconds is run often enough to be timed; what takes longer than its share is run once") {
  BenchDevice device(nullptr, 1, 0);
  int runs = 0;
  CHECK(device.Time(0.02, [&] { ++runs; }).seconds > 0);
  CHECK(runs > BenchDevice::kMostSamples);
  runs = 0;
  const Timing timing = device.Time(0.001, [&] {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  CHECK(timing.samples == 1);
  CHECK(runs == 2);
  CHECK(timing.seconds >= 0.02);
}

TEST_CASE("tensors to measure with hold finite numbers of many values") {
  const std::unique_ptr<Gpu> gpu = layout_test::MakeFakeGpu();
  for (Gpu* device_gpu : {static_cast<Gpu*>(nullptr), gpu.get()}) {
    BenchDevice device(device_gpu, 2, 0);
    const BenchTensor x(device, DType::f32, {1000, 1100});  // longer than the period
    std::vector<float> values;
    for (int64_t i = 0; i < x.tensor().numel(); ++i) {
      const float value = x.tensor().as<float>()[i];
      if (!(std::fabs(value) <= 1)) FAIL("element " << i << " is " << value);
      values.push_back(value);
    }
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    CHECK(values.size() > 100'000);
    const BenchTensor tokens(device, DType::i32, {200'000});
    FillTokens(device, tokens, 77);
    std::set<int32_t> seen(tokens.tensor().as<int32_t>(), tokens.tensor().as<int32_t>() + 200'000);
    CHECK(seen.size() == 77);
    CHECK(*seen.begin() == 0);
    CHECK(*seen.rbegin() == 76);
  }
}

TEST_CASE("copies in a device's memory, and between host and device") {
  const std::unique_ptr<Gpu> gpu = layout_test::MakeFakeGpu();
  BenchDevice cpu(nullptr, 2, 0), device(gpu.get(), 1, 0);
  const CopyRate copy = MeasureCopy(cpu, 0.05);
  CHECK(copy.bytes >= int64_t{1} << 20);
  CHECK(copy.bytes_per_second > 1e6);
  for (const bool to_device : {true, false}) {
    const HostLink link = MeasureHostLink(device, to_device, 0.05);
    CHECK(link.largest == int64_t{256} << 20);
    CHECK(link.large_copy > 1e6);
    CHECK(link.rate.bytes_per_second > 1e6);
  }
  CHECK_THROWS_AS(MeasureHostLink(cpu, true, 0.01), std::logic_error);
}

TEST_CASE("peaks of GPUs are found by name, the longer name first") {
  CHECK(KnownGpuPeaks("NVIDIA H200").flops.at(DType::bf16) == 989e12);
  CHECK(KnownGpuPeaks("NVIDIA H200").memory_bytes == 4.8e12);
  CHECK(KnownGpuPeaks("NVIDIA H200").link_bytes == 450e9);
  CHECK(KnownGpuPeaks("NVIDIA H200 NVL").memory_bytes == 4.8e12);
  CHECK(KnownGpuPeaks("NVIDIA H200 NVL").link_bytes == 0);
  CHECK(KnownGpuPeaks("NVIDIA A100-SXM4-80GB").flops.at(DType::f32) == 19.5e12);
  CHECK(KnownGpuPeaks("NVIDIA GeForce 256").flops.empty());
  CHECK(KnownGpuPeaks("").memory_bytes == 0);
}

#if defined(__x86_64__)
TEST_CASE("a CPU's fused multiply-adds are counted") {
  // Any CPU of the last fifteen years does more than a tenth of this, and none a thousand times as much.
  const double flops = CpuFmaFlops(DType::f32, 1, 0.02);
  CHECK(flops > 1e9);
  CHECK(flops < 1e13);
  CHECK(CpuFmaFlops(DType::f64, 1, 0.02) > 0.5e9);
  CHECK(CpuFmaFlops(DType::bf16, 1, 0.02) == 0);
}
#endif

}  // namespace ds
