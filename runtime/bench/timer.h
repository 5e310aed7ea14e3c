// Timing of what runs on a device: the median of repeats behind a warm-up.
#pragma once

#include <functional>
#include <vector>

#include "kernels/context.h"
#include "kernels/gpu.h"

namespace ds {

struct Timing {
  double seconds = 0;  ///< of one run: the median of the samples
  int samples = 0;     ///< 0: nothing was timed
};

/// The middle of the values, the mean of the two in the middle where their number is even; 0 of none.
double Median(std::vector<double> values);

/// Where kernels are timed: CPU threads, or a GPU with a stream and a workspace.
class BenchDevice {
 public:
  /// `gpu`: null for CPU threads; it outlives this. `workspace`: bytes, on a GPU alone.
  BenchDevice(Gpu* gpu, int threads, int64_t workspace);
  ~BenchDevice();
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;

  Gpu* gpu() const { return gpu_; }
  Device device() const { return gpu_ ? gpu_->device() : Device{}; }
  const KernelContext& context() const { return context_; }
  /// The same, and kernels may sum in any order.
  KernelContext Loose() const;

  /// Runs `body`, which enqueues on context().stream, once to warm up (code is loaded, algorithms are chosen, caches
  /// fill), then in samples until `seconds` are over: at least one, as a rule at least three, at most kMostSamples.
  /// A sample is as many runs as make it long enough for its clock: events on a GPU, else the monotonic clock.
  Timing Time(double seconds, const std::function<void()>& body);
  /// Waits for what was enqueued.
  void Finish();

  static constexpr int kMostSamples = 31;

 private:
  double Sample(int runs, const std::function<void()>& body);

  Gpu* const gpu_;
  GpuStream stream_;
  GpuEvent begin_, end_;
  void* workspace_ = nullptr;
  KernelContext context_;
};

/// Memory of a BenchDevice, filled with random numbers: those of zeros or ones draw less power and run faster.
class BenchTensor {
 public:
  BenchTensor(BenchDevice& device, DType dtype, Shape shape);
  ~BenchTensor();
  BenchTensor(BenchTensor&& other) noexcept;
  BenchTensor(const BenchTensor&) = delete;
  BenchTensor& operator=(const BenchTensor&) = delete;
  BenchTensor& operator=(BenchTensor&&) = delete;

  operator const Tensor&() const { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Gpu* gpu_;
  Tensor tensor_;
};

/// Every element of an i32 tensor of the device becomes a number in [0, below), in an order that repeats itself late.
void FillTokens(BenchDevice& device, const Tensor& tokens, int32_t below);

}  // namespace ds
