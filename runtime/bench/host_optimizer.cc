#include "runtime/bench/host_optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/optimizer.h"
#include "kernels/parallel.h"
#include "kernels/random.h"
#include "runtime/bench/budget.h"

namespace ds {
namespace {

enum { kGradient, kMaster, kFirst, kSecond, kHalfGradient, kWorking, kArrays };
constexpr int64_t kAlignment = 4096;

/// Bytes from one array to the next: whole pages, and some lines more, so that the same elements of all arrays do not
/// meet in one set of a cache.
int64_t Stride(int64_t parameters) {
  return (parameters * 4 + kAlignment - 1) / kAlignment * kAlignment + kAlignment + 5 * 64;
}

}  // namespace

const std::vector<HostOptimizerCase>& HostOptimizerCases() {
  static const std::vector<HostOptimizerCase> cases = {{"f32", "fp32", DType::f32, false},
                                                       {"bf16-copy", "bf16 copy", DType::f32, true},
                                                       {"bf16-gradient", "bf16 gradient and copy", DType::bf16, true}};
  return cases;
}

HostOptimizer::HostOptimizer(int64_t parameters, int threads)
    : parameters_(parameters), context_{threads}, memory_(kArrays * Stride(parameters)) {
  for (int index = 0; index < kArrays; ++index)
    PlaceStepMemory(Array(index, index >= kHalfGradient ? DType::bf16 : DType::f32));
  // Ordinary numbers everywhere: squares that are not negative, no denormals.
  FillNormal(context_, RandomStream{1, 1}, 0, 0.0f, 1e-3f, Array(kGradient, DType::f32));
  FillNormal(context_, RandomStream{1, 2}, 0, 0.0f, 0.02f, Array(kMaster, DType::f32));
  Fill(context_, Array(kFirst, DType::f32), 1e-4);
  Fill(context_, Array(kSecond, DType::f32), 1e-6);
  Cast(context_, Array(kGradient, DType::f32), Array(kHalfGradient, DType::bf16));
  Cast(context_, Array(kMaster, DType::f32), Array(kWorking, DType::bf16));
}

Tensor HostOptimizer::Array(int index, DType dtype) const {
  const Tensor bytes = memory_.Bytes(index * Stride(parameters_), parameters_ * static_cast<int64_t>(SizeOf(dtype)));
  return Tensor(bytes.data, dtype, Shape{parameters_});
}

void HostOptimizer::Step(const HostOptimizerCase& wanted) {
  const AdamScalars scalars = MakeAdamScalars(1e-5, 0.9, 0.999, 1e-8, 0.01, true, true, 10, 1.0);
  AdamStep(context_, scalars, Array(wanted.gradient == DType::f32 ? kGradient : kHalfGradient, wanted.gradient),
           Array(kMaster, DType::f32), Array(kFirst, DType::f32), Array(kSecond, DType::f32),
           wanted.working ? Array(kWorking, DType::bf16) : Tensor());
}

void HostOptimizer::Stream(const HostOptimizerCase& wanted) {
  detail::StreamArrays arrays;
  arrays.gradient_bytes = static_cast<int64_t>(SizeOf(wanted.gradient));
  arrays.gradient = Array(wanted.gradient == DType::f32 ? kGradient : kHalfGradient, wanted.gradient).data;
  arrays.master = Array(kMaster, DType::f32).as<float>();
  arrays.m = Array(kFirst, DType::f32).as<float>();
  arrays.v = Array(kSecond, DType::f32).as<float>();
  if (wanted.working) {
    arrays.working = static_cast<uint16_t*>(Array(kWorking, DType::bf16).data);
    arrays.past_caches = StepExceedsCaches((static_cast<int64_t>(SizeOf(wanted.gradient)) + 14) * parameters_);
  }
  constexpr int64_t kUnit = 1024;
  const int64_t units = (parameters_ + kUnit - 1) / kUnit;
  const int64_t each = (units + context_.threads - 1) / context_.threads * kUnit;
  detail::ParallelBlocks(context_, parameters_, std::max(each, kUnit),
                         [&](int64_t begin, int64_t end) { detail::StreamRange(arrays, begin, end); });
}

double HostOptimizer::Time(const HostOptimizerCase& wanted, bool stream, int runs) {
  const auto begin = std::chrono::steady_clock::now();
  for (int run = 0; run < runs; ++run) stream ? Stream(wanted) : Step(wanted);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / runs;
}

std::vector<HostOptimizerTiming> TimeHostOptimizer(HostOptimizer& optimizer, double seconds) {
  constexpr double kSample = 1e-3;  // beside it, the clock's own error is small
  constexpr size_t kLeastRounds = 3;
  const std::vector<HostOptimizerCase>& cases = HostOptimizerCases();
  std::vector<HostOptimizerTiming> timings(cases.size());
  int runs = 1;
  for (const HostOptimizerCase& c : cases) {  // loads code, wakes threads
    optimizer.Time(c, true, 1);
    const double once = std::max(optimizer.Time(c, false, 1), 1e-7);
    runs = static_cast<int>(std::clamp(std::ceil(kSample / once), static_cast<double>(runs), 1e4));
  }
  const Budget budget(seconds), patience(2 * seconds);
  while (timings[0].step.empty() || !budget.Over() || (timings[0].step.size() < kLeastRounds && !patience.Over()))
    for (size_t c = 0; c < cases.size(); ++c) {
      timings[c].stream.push_back(optimizer.Time(cases[c], true, runs));
      timings[c].step.push_back(optimizer.Time(cases[c], false, runs));
    }
  return timings;
}

}  // namespace ds
