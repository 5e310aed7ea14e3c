// Optimizer updates in C++ alone, for any CPU.
#include <algorithm>

#include "kernels/convert.h"
#include "kernels/optimizer_kernels.h"
#include "kernels/optimizer_math.h"

namespace ds::detail {
namespace {

constexpr int64_t kBlock = 1024;  ///< elements whose gradient is converted, and whose master is rounded, in the cache

/// update(gradient, begin, end): gradient[i - begin] is element i's, in fp32.
template <class Update>
void ForEachBlock(const OptimizerArrays& a, int64_t begin, int64_t end, const Update& update) {
  DispatchFloating(a.gradient_type, "optimizer", [&](auto gradient_type) {
    DispatchFloating(a.working_type, "optimizer", [&](auto working_type) {
      const auto* gradient = static_cast<const decltype(gradient_type)*>(a.gradient);
      auto* working = static_cast<decltype(working_type)*>(a.working);
      float converted[kBlock];
      for (int64_t from = begin; from < end; from += kBlock) {
        const int64_t to = std::min(from + kBlock, end), count = to - from;
        if constexpr (std::is_same_v<decltype(gradient_type), float>) {
          update(gradient + from, from, to);
        } else {
          Convert(gradient + from, converted, count);
          update(converted, from, to);
        }
        if (working) Convert(a.master + from, working + from, count);
      }
    });
  });
}

template <int States, class Scalars>
void Step(const Scalars& scalars, const OptimizerArrays& a, int64_t begin, int64_t end) {
  ForEachBlock(a, begin, end, [&](const float* gradient, int64_t from, int64_t to) {
    const Scalars s = scalars;
    float* const p = a.master + from;
    float* const first = States > 0 ? a.state[0] + from : nullptr;
    float* const second = States > 1 ? a.state[1] + from : nullptr;
#pragma omp simd
    for (int64_t i = 0; i < to - from; ++i) {
      if constexpr (States == 0)
        Update(s, gradient[i], p[i]);
      else if constexpr (States == 1)
        Update(s, gradient[i], p[i], first[i]);
      else
        Update(s, gradient[i], p[i], first[i], second[i]);
    }
  });
}

void Adam(const AdamScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) { Step<2>(s, a, begin, end); }
void Sgd(const SgdScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  a.state[0] ? Step<1>(s, a, begin, end) : Step<0>(s, a, begin, end);
}
void Lion(const LionScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) { Step<1>(s, a, begin, end); }
void Adagrad(const AdagradScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  Step<1>(s, a, begin, end);
}
void RmsProp(const RmsPropScalars& s, const OptimizerArrays& a, int64_t begin, int64_t end) {
  a.state[1] ? Step<2>(s, a, begin, end) : Step<1>(s, a, begin, end);
}

}  // namespace

const OptimizerKernels kPortableOptimizerKernels = {"portable", Adam, Sgd, Lion, Adagrad, RmsProp};

}  // namespace ds::detail
