#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"
#include "kernels/widest.h"

namespace ds {
namespace {

/// The loss of one row; `gradient` (or null) receives (softmax - onehot) * scale, zeros in the padding.
template <class A, class T>
A OneRow(const A* logits, int64_t vocabulary, int64_t padded, int32_t target, A scale, T* gradient) {
  if (target < 0) {
    if (gradient) std::fill(gradient, gradient + padded, T(0));
    return 0;
  }
  const A largest = detail::LaneMax(logits, vocabulary), target_logit = logits[target];
  const auto exponential = [=](int64_t i) { return detail::Exp(logits[i] - largest); };
  A sum;
  if constexpr (std::is_same_v<A, T>) {
    // The gradient, which may be the logits, keeps the exponentials in between.
    sum = detail::LaneSum<A>(vocabulary, [=](int64_t i) {
      const A e = exponential(i);
      if (gradient) gradient[i] = e;
      return e;
    });
  } else {
    sum = detail::LaneSum<A>(vocabulary, exponential);
  }
  if (gradient) {
    constexpr int64_t kBlock = 512;
    const A factor = scale / sum;
    for (int64_t at = 0; at < vocabulary; at += kBlock) {
      const int64_t n = std::min(kBlock, vocabulary - at);
      A block[kBlock];
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<A, T>)
          block[i] = gradient[at + i] * factor;
        else
          block[i] = exponential(at + i) * factor;
      }
      if (target >= at && target < at + n) block[target - at] -= scale;
      detail::Convert(block, gradient + at, n);
    }
    std::fill(gradient + vocabulary, gradient + padded, T(0));
  }
  return std::log(sum) + (largest - target_logit);
}

template <class A, class T>
void AllRows(const KernelContext& context, const Tensor& logits, const int32_t* targets, int64_t vocabulary,
             double scale, A* losses, T* gradients) {
  const int64_t padded = detail::Columns(logits);
  const A* in = logits.as<A>();
  detail::ParallelBlocks(context, detail::Rows(logits), 4, [&](int64_t begin, int64_t end) {
    detail::Widest([&] {
      for (int64_t row = begin; row < end; ++row)
        losses[row] = OneRow(in + row * padded, vocabulary, padded, targets[row], static_cast<A>(scale),
                             gradients ? gradients + row * padded : nullptr);
    });
  });
}

}  // namespace

void CrossEntropy(const KernelContext& context, Tensor logits, Tensor targets, int64_t vocabulary, double scale,
                  Tensor losses, Tensor dlogits) {
  const char* kernel = "CrossEntropy";
  detail::CheckMemory(kernel, "logits", logits);
  detail::Check(logits.dtype == DType::f32 || logits.dtype == DType::f64, kernel,
                detail::Describe("logits", logits) + ", expected f32 or f64");
  const int64_t rows = detail::Rows(logits), padded = detail::Columns(logits);
  detail::CheckVector(kernel, "targets", targets, DType::i32, rows);
  detail::CheckVector(kernel, "losses", losses, logits.dtype, rows);
  detail::Check(
      vocabulary > 0 && vocabulary <= padded, kernel,
      "a vocabulary of " + std::to_string(vocabulary) + " in logits of " + std::to_string(padded) + " columns");
  if (dlogits) {
    detail::CheckFloating(kernel, "dlogits", dlogits);
    detail::CheckMatrix(kernel, "dlogits", dlogits, dlogits.dtype, rows, padded);
  }
  if (detail::RanOnCuda(kernel, cuda::CrossEntropy, context, logits, targets, vocabulary, scale, losses, dlogits))
    return;
  const int32_t* target = targets.as<int32_t>();
  for (int64_t row = 0; row < rows; ++row)
    if (target[row] >= vocabulary)
      detail::Check(false, kernel,
                    "target " + std::to_string(target[row]) + " of row " + std::to_string(row) +
                        " is outside the vocabulary of " + std::to_string(vocabulary));
  const auto with_gradient_type = [&](auto accumulate_type) {
    using A = decltype(accumulate_type);
    if (!dlogits) return AllRows<A, A>(context, logits, target, vocabulary, scale, losses.as<A>(), nullptr);
    detail::DispatchFloating(dlogits.dtype, kernel, [&](auto type) {
      using T = decltype(type);
      AllRows<A, T>(context, logits, target, vocabulary, scale, losses.as<A>(), dlogits.as<T>());
    });
  };
  if (logits.dtype == DType::f64)
    with_gradient_type(double{});
  else
    with_gradient_type(float{});
}

}  // namespace ds
