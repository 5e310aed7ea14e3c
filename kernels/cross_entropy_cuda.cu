#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_mma.h"
#include "kernels/cuda_types.h"

namespace ds::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kPacksTogether = 4;  ///< of a row that a thread has on their way at a time

/// e^x for logits of type T. Those of 16 bits are farther off than the hardware's 2^x is (2 ulp, by the CUDA
/// documentation), which costs a third of the instructions of expf.
template <class T>
__device__ Acc<T> Exp(Acc<T> x) {
  if constexpr (sizeof(T) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  } else if constexpr (sizeof(T) == 4) {
    return expf(x);
  } else {
    return exp(x);
  }
}

/// The largest of some logits of type T and the sum of exp(logit - largest) over them (Milakov and Gimelshein 2018).
template <class T>
struct Partial {
  using A = Acc<T>;
  A largest = A(-INFINITY), sum = 0;

  /// e^(x - reference), 1 where they are equal, infinite ones too.
  static __device__ A Relative(A x, A reference) { return x == reference ? A(1) : Exp<T>(x - reference); }

  /// The same bits whichever of the two comes first.
  __device__ Partial Joined(const Partial& other) const {
    const A both = fmax(largest, other.largest);
    return {both, sum * Relative(largest, both) + other.sum * Relative(other.largest, both)};
  }

  /// More logits. A NaN among them makes the sum NaN, and so does an infinite one.
  template <int N>
  __device__ void Add(const Pack<A, N>& x) {
    A both = largest;
#pragma unroll
    for (int k = 0; k < N; ++k) both = fmax(both, x[k]);
    sum *= Relative(largest, both);
    const A from = both == A(-INFINITY) ? A(0) : both;
#pragma unroll
    for (int k = 0; k < N; ++k) sum += Exp<T>(x[k] - from);
    largest = both;
  }
};

/// Joins the parts of a block's threads in a fixed tree; every thread gets the result.
template <class T>
__device__ Partial<T> JoinBlock(Partial<T> part) {
  using A = Acc<T>;
  __shared__ A largest[kWarp], sums[kWarp];
  const auto join_warp = [](Partial<T> p) {
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

/// A pack of a row as it is stored; -infinity for its elements from `end` on.
template <bool kAligned, int N, class T>
__device__ Pack<T, N> LoadLogits(const T* row, int64_t pack, int64_t end) {
  const int64_t i = pack * N;
  if (kAligned && i + N <= end) return LoadRaw<N>(row + i);
  Pack<T, N> logits;
#pragma unroll
  for (int k = 0; k < N; ++k) logits[k] = i + k < end ? row[i + k] : Converted<T>(Acc<T>(-INFINITY));
  return logits;
}

/// A thread's packs of a row that shared memory holds, every blockDim.x-th from `first`: all are on their way from the
/// start, in groups.
template <class T>
class KeptPacks {
 public:
  static constexpr int kGroups = 4, N = kPackSize<T>;

  /// Of packs [0, end).
  __device__ KeptPacks(T* kept, int64_t end) : kept_(kept), end_(end) {
    const int64_t mine = end > threadIdx.x ? (end - threadIdx.x + blockDim.x - 1) / blockDim.x : 0;
    group_ = (mine + kGroups - 1) / kGroups * blockDim.x;
  }

  /// Whole rows of packs; `vocabulary` may end within the last.
  template <bool kAligned>
  __device__ void Fetch(const T* row, int64_t vocabulary) const {
    for (int g = 0; g < kGroups; ++g) {
      ForGroup(g, [&](int64_t p) {
        if (kAligned && (p + 1) * N <= vocabulary)
          CopyAsync(kept_ + p * N, row + p * N, true);
        else
          StoreRaw(kept_ + p * N, LoadLogits<kAligned, N>(row, p, vocabulary));
      });
      CommitCopies();
    }
  }

  /// use(logits of a pack), in order, as they come.
  template <class Use>
  __device__ void ForEach(const Use& use) const {
    const auto group = [&](int g) { ForGroup(g, [&](int64_t p) { use(Load<N>(kept_ + p * N)); }); };
    WaitCopies<3>();
    group(0);
    WaitCopies<2>();
    group(1);
    WaitCopies<1>();
    group(2);
    WaitCopies<0>();
    group(3);
  }

 private:
  template <class Body>
  __device__ void ForGroup(int g, const Body& body) const {
    const int64_t begin = threadIdx.x + g * group_;
    for (int64_t p = begin; p < min(end_, begin + group_); p += blockDim.x) body(p);
  }

  T* const kept_;
  const int64_t end_;
  int64_t group_ = 0;
};

/// One block a row, read once: the first `cached` packs stay in shared memory for the gradient, others are read again.
/// A thread takes every blockDim.x-th pack of N logits; which is the same for rows that can be loaded in packs and
/// those that cannot, and so are the results.
template <bool kAligned, class T, class G>
__global__ void __launch_bounds__(kMaxThreads)
    CrossEntropyKernel(const T* logits, const int32_t* targets, int64_t vocabulary, int64_t padded, int64_t cached,
                       Acc<T> scale, Acc<T>* losses, G* gradients) {
  using A = Acc<T>;
  constexpr int N = kPackSize<T>;
  extern __shared__ uint4 shared[];
  T* const kept = reinterpret_cast<T*>(shared);
  const int64_t row = blockIdx.x, first = threadIdx.x, step = blockDim.x;
  const int64_t packs = (vocabulary + N - 1) / N;
  const T* in = logits + row * padded;
  const int32_t target = targets[row];

  const int64_t not_kept = first < cached ? first + (cached - first + step - 1) / step * step : first;
  A factor = 0, largest = 0;
  if (target < 0) {
    if (threadIdx.x == 0) losses[row] = 0;
  } else {
    Partial<T> part;
    const KeptPacks<T> own(kept, cached);
    own.template Fetch<kAligned>(in, vocabulary);
    own.ForEach([&](const Pack<A, N>& logits) { part.Add(logits); });
    for (int64_t p = not_kept; p < packs; p += kPacksTogether * step) {
      Pack<T, N> raw[kPacksTogether];
#pragma unroll
      for (int u = 0; u < kPacksTogether; ++u)
        if (p + u * step < packs) raw[u] = LoadLogits<kAligned, N>(in, p + u * step, vocabulary);
#pragma unroll
      for (int u = 0; u < kPacksTogether; ++u)
        if (p + u * step < packs) part.Add(ConvertPack<A>(raw[u]));
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
  const auto write = [&](int64_t pack, Pack<A, N> d) {
    const int64_t i = pack * N;
#pragma unroll
    for (int k = 0; k < N; ++k) d[k] = Exp<T>(d[k] - largest) * factor;
    if (target >= i && target < i + N) {
#pragma unroll
      for (int k = 0; k < N; ++k) d[k] -= i + k == target ? scale : A(0);
    }
    if (target < 0 || i + N > vocabulary) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (target < 0 || i + k >= vocabulary) d[k] = 0;
    }
    if (kAligned) {
      Store(out + i, d);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (i + k < padded) out[i + k] = Converted<G>(d[k]);
    }
  };
  // Packs that are not kept come first: what was read last is still in the GPU's cache. A thread reads its own packs
  // alone, kept ones too: they need no barrier.
  const int64_t end = (padded + N - 1) / N;
  for (int64_t p = not_kept; p < end; p += step) {
    const bool real = target >= 0 && p < packs;
    write(p, real ? ConvertPack<A>(LoadLogits<kAligned, N>(in, p, vocabulary)) : Pack<A, N>{});
  }
  for (int64_t p = first; p < cached; p += step) write(p, target >= 0 ? Load<N>(kept + p * N) : Pack<A, N>{});
}

/// A few packs a thread; whole warps. Two rows at a time on a multiprocessor where its shared memory holds them.
int ThreadsFor(int64_t vocabulary, int64_t element_bytes) {
  constexpr int64_t kHalfOfShared = 112 * 1024;
  if (vocabulary > 16384) return vocabulary * element_bytes <= kHalfOfShared ? kMaxThreads / 2 : kMaxThreads;
  return vocabulary > 1024 ? 256 : 64;
}

/// Packs of 16 bytes of a row that a block may keep in shared memory.
int64_t MostCached() {
  constexpr int kOwn = 1024;  // JoinBlock's, and what CUDA takes
  int device = 0, bytes = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  CheckCuda(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
  return (bytes - kOwn) / 16;
}

template <class T, class G>
void Launch(const KernelContext& context, const Tensor& logits, const Tensor& targets, int64_t vocabulary, double scale,
            const Tensor& losses, const Tensor& dlogits) {
  const int64_t rows = detail::Rows(logits), padded = detail::Columns(logits);
  const int64_t packs = (vocabulary + kPackSize<T> - 1) / kPackSize<T>;
  const int64_t cached = dlogits ? std::min(packs, MostCached()) : 0;
  const auto run = [&](auto kernel) {
    const int bytes = static_cast<int>(cached * 16);
    LaunchWithShared("CrossEntropy", kernel, static_cast<unsigned>(rows), ThreadsFor(vocabulary, sizeof(T)), bytes,
                     Stream(context), Elements<T>(logits), Elements<int32_t>(targets), vocabulary, padded, cached,
                     static_cast<Acc<T>>(scale), Elements<Acc<T>>(losses), Elements<G>(dlogits));
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
