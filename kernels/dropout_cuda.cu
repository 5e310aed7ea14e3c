#include "kernels/cuda_elementwise.h"
#include "kernels/dropout.h"
#include "kernels/dropout_rule.h"
#include "kernels/philox.h"

namespace ds::cuda {
namespace {

template <class T>
struct DropoutElements {
  RandomStream stream;
  uint64_t first;
  uint32_t threshold;
  Acc<T> scale;
  const T *x, *residual;
  T* y;

  /// N is 1 or, where `first` is a multiple of 4, of whole random blocks.
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> v = Load<N>(x + i);
    const uint64_t number = first + static_cast<uint64_t>(i);
#pragma unroll
    for (int block = 0; block < (N + 3) / 4; ++block) {
      const detail::PhiloxWords words = detail::PhiloxBlock(stream, number / 4 + block);
#pragma unroll
      for (int k = 0; k < (N < 4 ? N : 4); ++k) {
        const uint32_t word = N == 1 ? WordAt(words, static_cast<int>(number % 4)) : words.v[k];
        // Chosen, not multiplied: a dropped infinity or NaN is 0.
        v[4 * block + k] = word >= threshold ? v[4 * block + k] * scale : Acc<T>(0);
      }
    }
    if (residual) {
      const Pack<Acc<T>, N> add = Load<N>(residual + i);
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] += add[k];
    }
    Store(y + i, v);
  }

  /// words.v[k] without an array in memory.
  __device__ static uint32_t WordAt(const detail::PhiloxWords& words, int k) {
    const uint32_t low = k & 1 ? words.v[1] : words.v[0], high = k & 1 ? words.v[3] : words.v[2];
    return k & 2 ? high : low;
  }
};

}  // namespace

void Dropout(const KernelContext& context, RandomStream stream, uint64_t first, float p, Tensor x, Tensor residual,
             Tensor y) {
  const detail::DropoutRule rule = detail::MakeDropoutRule("Dropout", p);
  const bool aligned = Aligned(x.data, residual.data, y.data) && first % 4 == 0;
  DispatchFloating(x.dtype, "Dropout", [&](auto type) {
    using T = decltype(type);
    ForEachElement(context, "Dropout", x.numel(), aligned,
                   DropoutElements<T>{stream, first, rule.threshold, static_cast<Acc<T>>(rule.scale), Elements<T>(x),
                                      Elements<T>(residual), Elements<T>(y)});
  });
}

}  // namespace ds::cuda
