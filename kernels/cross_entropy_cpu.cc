#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/lanes.h"
#include "kernels/parallel.h"
#include "kernels/vector_math.h"
#include "kernels/widest.h"

namespace ds {
namespace {

using detail::Acc;

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

template <class T, class G>
void AllRows(const KernelContext& context, const Tensor& logits, const int32_t* targets, int64_t vocabulary,
             double scale, Acc<T>* losses, G* gradients) {
  const int64_t padded = detail::Columns(logits);
  const T* in = logits.as<T>();
  detail::ParallelBlocks(context, detail::Rows(logits), 4, [&](int64_t begin, int64_t end) {
    std::vector<Acc<T>> buffer(std::is_same_v<T, Acc<T>> ? 0 : static_cast<size_t>(vocabulary));
    detail::Widest([&] {
      for (int64_t row = begin; row < end; ++row)
        losses[row] = OneRow(detail::Load(in + row * padded, buffer.data(), vocabulary), vocabulary, padded,
                             targets[row], static_cast<Acc<T>>(scale), gradients ? gradients + row * padded : nullptr);
    });
  });
}

}  // namespace

void CrossEntropy(const KernelContext& context, Tensor logits, Tensor targets, int64_t vocabulary, double scale,
                  Tensor losses, Tensor dlogits) {
  const char* kernel = "CrossEntropy";
  detail::CheckFloating(kernel, "logits", logits);
  const int64_t rows = detail::Rows(logits), padded = detail::Columns(logits);
  detail::CheckVector(kernel, "targets", targets, DType::i32, rows);
  detail::CheckVector(kernel, "losses", losses, detail::AccumulateType(logits.dtype), rows);
  detail::Check(
      vocabulary > 0 && vocabulary <= padded, kernel,
      "a vocabulary of " + std::to_string(vocabulary) + " in logits of " + std::to_string(padded) + " columns");
  if (dlogits) {
    detail::CheckFloating(kernel, "dlogits", dlogits);
    const bool narrow = logits.dtype == DType::bf16 || logits.dtype == DType::f16;
    detail::CheckMatrix(kernel, "dlogits", dlogits, narrow ? logits.dtype : dlogits.dtype, rows, padded);
    detail::Check(dlogits.data != logits.data || dlogits.dtype == logits.dtype, kernel,
                  detail::Describe("dlogits", dlogits) + " in the memory of " + detail::Describe("logits", logits) +
                      ", expected the same dtype");
  }
  if (detail::RanOnCuda(kernel, cuda::CrossEntropy, context, logits, targets, vocabulary, scale, losses, dlogits))
    return;
  const int32_t* target = targets.as<int32_t>();
  for (int64_t row = 0; row < rows; ++row)
    if (target[row] >= vocabulary)
      detail::Check(false, kernel,
                    "target " + std::to_string(target[row]) + " of row " + std::to_string(row) +
                        " is outside the vocabulary of " + std::to_string(vocabulary));
  detail::DispatchFloating(logits.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    const auto run = [&](auto* gradients) {
      AllRows<T>(context, logits, target, vocabulary, scale, losses.as<Acc<T>>(), gradients);
    };
    if (!dlogits) return run(static_cast<T*>(nullptr));
    if constexpr (sizeof(T) == 2)
      run(dlogits.as<T>());
    else
      detail::DispatchFloating(dlogits.dtype, kernel,
                               [&](auto gradient_type) { run(dlogits.as<decltype(gradient_type)>()); });
  });
}

}  // namespace ds
