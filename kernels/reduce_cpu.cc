#include "kernels/reduce.h"

#include <vector>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/widest.h"
#include "kernels/workspace.h"

namespace ds {
namespace {

template <class T>
double BlockwiseSumOfSquares(const KernelContext& context, const T* x, int64_t n) {
  std::vector<double> parts(static_cast<size_t>((n + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock));
  detail::ParallelBlocks(context, n, kSumOfSquaresBlock, [&](int64_t begin, int64_t end) {
    const T* block = x + begin;
    double& part = parts[static_cast<size_t>(begin / kSumOfSquaresBlock)];
    detail::Widest([&] {
      part = detail::LaneSum<double>(end - begin, [block](int64_t i) {
        const double v = block[i];
        return v * v;
      });
    });
  });
  double sum = 0;
  for (double part : parts) sum += part;
  return sum;
}

}  // namespace

double SumOfSquares(const KernelContext& context, Tensor x) {
  detail::CheckMemory("SumOfSquares", "x", x);
  detail::RequireCpu("SumOfSquares", x);
  if (x.dtype == DType::f64) return BlockwiseSumOfSquares(context, x.as<double>(), x.numel());
  detail::Check(x.dtype == DType::f32, "SumOfSquares", detail::Describe("x", x) + ", expected f32 or f64");
  return BlockwiseSumOfSquares(context, x.as<float>(), x.numel());
}

void AddSumsOfSquares(const KernelContext& context, std::span<const SquareTerm> terms) {
  const char* kernel = "AddSumsOfSquares";
  for (const auto& [x, sum] : terms) {
    detail::CheckMemory(kernel, "x", x);
    if (x.dtype != DType::f32 && x.dtype != DType::f64)
      detail::Check(false, kernel, detail::Describe("x", x) + ", expected f32 or f64");
    detail::CheckVector(kernel, "sum", sum, DType::f64, 1);
  }
  if (detail::RanOnCuda(kernel, cuda::AddSumsOfSquares, context, terms)) return;
  for (const auto& [x, sum] : terms) *sum.as<double>() += SumOfSquares(context, x);
}

void SumInto(const KernelContext& context, Tensor x, Tensor sum) {
  const char* kernel = "SumInto";
  detail::CheckMemory(kernel, "x", x);
  detail::Check(x.dtype == DType::f32 || x.dtype == DType::f64, kernel,
                detail::Describe("x", x) + ", expected f32 or f64");
  detail::CheckVector(kernel, "sum", sum, DType::f64, 1);
  if (detail::RanOnCuda(kernel, cuda::SumInto, context, x, sum)) return;
  const auto add_up = [&sum](const auto* values, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; ++i) total += values[i];
    *sum.as<double>() = total;
  };
  if (x.dtype == DType::f64)
    add_up(x.as<double>(), x.numel());
  else
    add_up(x.as<float>(), x.numel());
}

void SumInOrder(const KernelContext& context, std::span<const Tensor> parts, Tensor out) {
  using detail::Acc;
  const char* kernel = "SumInOrder";
  detail::Check(!parts.empty(), kernel, "no parts");
  detail::CheckFloating(kernel, "out", out);
  for (const Tensor& part : parts) detail::CheckVector(kernel, "a part", part, out.dtype, out.numel());
  if (detail::RanOnCuda(kernel, cuda::SumInOrder, context, parts, out)) return;
  constexpr int64_t kBlock = 2048;
  detail::DispatchFloating(out.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    detail::ParallelBlocks(context, out.numel(), kBlock, [&](int64_t begin, int64_t end) {
      Acc<T> sum[kBlock], buffer[kBlock];
      const int64_t n = end - begin;
      detail::Convert(parts[0].as<T>() + begin, sum, n);
      for (size_t p = 1; p < parts.size(); ++p) {
        const Acc<T>* part = detail::Load(parts[p].as<T>() + begin, buffer, n);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sum[i] += part[i];
      }
      detail::Store(sum, out.as<T>() + begin, n);
    });
  });
}

}  // namespace ds
