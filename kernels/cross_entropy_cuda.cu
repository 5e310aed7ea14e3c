#include "kernels/cross_entropy.h"

#include <cmath>

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"

namespace ds::cuda {
namespace {

constexpr int kMaxThreads = 1024, kWarp = 32;

__device__ inline float Exp(float x) { return expf(x); }
__device__ inline double Exp(double x) { return exp(x); }

/// The largest of some logits and the sum of exp(logit - largest) over them (Milakov and Gimelshein 2018).
template <class A>
struct Partial {
  A largest, sum;

  /// e^(x - reference), 1 where they are equal, infinite ones too.
  static __device__ A Relative(A x, A reference) { return x == reference ? A(1) : Exp(x - reference); }

  /// The same bits whichever of the two comes first.
  __device__ Partial Joined(const Partial& other) const {
    const A both = fmax(largest, other.largest);
    return {both, sum * Relative(largest, both) + other.sum * Relative(other.largest, both)};
  }
};

/// Joins the parts of a block's threads in a fixed tree; every thread gets the result.
template <class A>
__device__ Partial<A> JoinBlock(Partial<A> part) {
  __shared__ A largest[kWarp], sums[kWarp];
  const auto join_warp = [](Partial<A> p) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      p = p.Joined({__shfl_xor_sync(0xffffffffu, p.largest, distance), __shfl_xor_sync(0xffffffffu, p.sum, distance)});
    return p;
  };
  part = join_warp(part);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0) largest[warp] = part.largest, sums[warp] = part.sum;
  __syncthreads();
  const bool used = lane < blockDim.x / kWarp;
  return join_warp({used ? largest[lane] : A(-INFINITY), used ? sums[lane] : A(0)});
}

/// Elements [i, i + N) of a row, of which `end` exist.
template <bool kAligned, int N, class T>
__device__ Pack<Acc<T>, N> LoadLogits(const T* row, int64_t i, int64_t end) {
  if (kAligned && i + N <= end) return Load<N>(row + i);
  Pack<Acc<T>, N> logits;
#pragma unroll
  for (int k = 0; k < N; ++k) logits[k] = i + k < end ? Converted<Acc<T>>(row[i + k]) : Acc<T>(-INFINITY);
  return logits;
}

/// One block a row. A thread takes packs of N logits; which is the same for rows that can be loaded in packs and those
/// that cannot, and so are the results.
template <bool kAligned, class T, class G>
__global__ void __launch_bounds__(kMaxThreads)
    CrossEntropyKernel(const T* logits, const int32_t* targets, int64_t vocabulary, int64_t padded, Acc<T> scale,
                       Acc<T>* losses, G* gradients) {
  using A = Acc<T>;
  constexpr int N = kPackSize<T>;
  const int64_t row = blockIdx.x;
  const T* in = logits + row * padded;
  const int32_t target = targets[row];
  const int64_t first = static_cast<int64_t>(threadIdx.x) * N, step = static_cast<int64_t>(blockDim.x) * N;

  A factor = 0, largest = 0;
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
  } else {
    Partial<A> part{A(-INFINITY), A(0)};
    for (int64_t i = first; i < vocabulary; i += step) {
      const Pack<A, N> x = LoadLogits<kAligned, N>(in, i, vocabulary);
      A both = part.largest;
#pragma unroll
      for (int k = 0; k < N; ++k) both = fmax(both, x[k]);
      A sum = part.sum * Partial<A>::Relative(part.largest, both);
#pragma unroll
      for (int k = 0; k < N; ++k) sum += x[k] == A(-INFINITY) ? A(0) : Exp(x[k] - both);
      part = {both, sum};
    }
    // Read before a gradient is written in its place, which is after the barrier in JoinBlock.
    const bool known = target < vocabulary;
    const A target_logit = threadIdx.x == 0 && known ? Converted<A>(in[target]) : A(NAN);
    part = JoinBlock(part);
    if (threadIdx.x == 0) losses[row] = log(part.sum) + (part.largest - target_logit);
    largest = part.largest;
    factor = known ? scale / part.sum : A(NAN);
  }
  if (gradients == nullptr) return;

  G* out = gradients + row * padded;
  for (int64_t i = first; i < padded; i += step) {
    Pack<A, N> d;
    if (target >= 0) {
      d = LoadLogits<kAligned, N>(in, i, padded);
#pragma unroll
      for (int k = 0; k < N; ++k) d[k] = Exp(d[k] - largest) * factor - (i + k == target ? scale : A(0));
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (target < 0 || i + k >= vocabulary) d[k] = 0;
    if (kAligned) {
      Store(out + i, d);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (i + k < padded) out[i + k] = Converted<G>(d[k]);
    }
  }
}

/// Enough for a few packs a thread; whole warps.
int ThreadsFor(int64_t vocabulary) {
  if (vocabulary > 16384) return kMaxThreads;
  return vocabulary > 1024 ? 256 : 64;
}

template <class T, class G>
void Launch(const KernelContext& context, const Tensor& logits, const Tensor& targets, int64_t vocabulary, double scale,
            const Tensor& losses, const Tensor& dlogits) {
  const int64_t rows = detail::Rows(logits), padded = detail::Columns(logits);
  const auto run = [&](auto kernel) {
    kernel<<<static_cast<unsigned>(rows), ThreadsFor(vocabulary), 0, Stream(context)>>>(
        Elements<T>(logits), Elements<int32_t>(targets), vocabulary, padded, static_cast<Acc<T>>(scale),
        Elements<Acc<T>>(losses), Elements<G>(dlogits));
    CheckLaunch("CrossEntropy");
  };
  if (padded % kPackSize<T> == 0 && Aligned(logits.data, dlogits.data))
    run(CrossEntropyKernel<true, T, G>);
  else
    run(CrossEntropyKernel<false, T, G>);
}

}  // namespace

void CrossEntropy(const KernelContext& context, Tensor logits, Tensor targets, int64_t vocabulary, double scale,
                  Tensor losses, Tensor dlogits) {
  if (detail::Rows(logits) == 0) return;
  DispatchFloating(logits.dtype, "CrossEntropy", [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      Launch<T, T>(context, logits, targets, vocabulary, scale, losses, dlogits);
    } else {
      DispatchFloating(dlogits ? dlogits.dtype : logits.dtype, "CrossEntropy", [&](auto gradient_type) {
        Launch<T, decltype(gradient_type)>(context, logits, targets, vocabulary, scale, losses, dlogits);
      });
    }
  });
}

}  // namespace ds::cuda
