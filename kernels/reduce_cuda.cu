#include "kernels/reduce.h"

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda_elementwise.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

constexpr int kLanes = 16;     ///< of the order in reduce.h, as is kSumOfSquaresBlock
constexpr int kThreads = 256;  ///< of a block: sixteen add, all bring them the numbers
template <class T>
constexpr int kTile = 8192 / static_cast<int>(sizeof(T));  ///< numbers in shared memory at a time
constexpr int kStages = 3;                                 ///< tiles on their way at a time

/// sum + [v * v]. The square of an fp32 is exact in fp64, so that one fused operation rounds alike.
__device__ double AddSquare(double sum, float v) { return fma(static_cast<double>(v), static_cast<double>(v), sum); }
__device__ double AddSquare(double sum, double v) { return sum + v * v; }

/// The sum of squares of one block of kSumOfSquaresBlock numbers. Sixteen threads add up a lane each, in order; the
/// others only keep tiles of numbers coming (cp.async), so that the additions are what the block waits for.
template <class T>
__global__ void __launch_bounds__(kThreads) SquareBlocks(const T* x, int64_t n, double* sums) {
  __shared__ alignas(16) T tiles[kStages][kTile<T>];
  __shared__ double lanes[kLanes];
  const T* block = x + static_cast<int64_t>(blockIdx.x) * kSumOfSquaresBlock;
  const int count =
      static_cast<int>(min(kSumOfSquaresBlock, n - static_cast<int64_t>(blockIdx.x) * kSumOfSquaresBlock));
  const int tile_count = (count + kTile<T> - 1) / kTile<T>;
  const auto fetch = [&](int tile) {
    if (tile < tile_count) {
#pragma unroll
      for (int k = 0; k < kTile<T> / kThreads; ++k) {
        const int at = k * kThreads + threadIdx.x;
        if (tile * kTile<T> + at < count)
          __pipeline_memcpy_async(&tiles[tile % kStages][at], block + tile * kTile<T> + at, sizeof(T));
      }
    }
    __pipeline_commit();
  };
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);
  double sum = 0;
  for (int tile = 0; tile < tile_count; ++tile) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // the tile is there for all, and the one before it was read by all
    fetch(tile + kStages - 1);
    if (threadIdx.x < kLanes) {
      const T* numbers = tiles[tile % kStages] + threadIdx.x;
      if (count - tile * kTile<T> >= kTile<T>) {
#pragma unroll 32
        for (int i = 0; i < kTile<T>; i += kLanes) sum = AddSquare(sum, numbers[i]);
      } else {
        for (int i = threadIdx.x; i < count - tile * kTile<T>; i += kLanes) {
          sum = AddSquare(sum, *numbers);
          numbers += kLanes;
        }
      }
    }
  }
  if (threadIdx.x < kLanes) lanes[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0;
    for (int l = 0; l < kLanes; ++l) total += lanes[l];
    sums[blockIdx.x] = total;
  }
}

/// *sum += the blocks' sums, added up in order by one thread.
__global__ void __launch_bounds__(kThreads) AddBlocks(const double* sums, int64_t blocks, double* sum) {
  __shared__ double piece[kThreads];
  double total = 0;
  for (int64_t begin = 0; begin < blocks; begin += kThreads) {
    if (begin + threadIdx.x < blocks) piece[threadIdx.x] = sums[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
      const int end = static_cast<int>(min(int64_t{kThreads}, blocks - begin));
      for (int i = 0; i < end; ++i) total += piece[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *sum += total;
}

constexpr int kFewParts = 16, kManyParts = 1024;

template <class T, int kMaxParts>
struct SumParts {
  const T* parts[kMaxParts];
  int count;
  T* out;
  template <int N>
  __device__ void Apply(int64_t i) const {
    Pack<Acc<T>, N> sum = Load<N>(parts[0] + i);
#pragma unroll 4
    for (int p = 1; p < count; ++p) {
      const Pack<Acc<T>, N> part = Load<N>(parts[p] + i);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += part[k];
    }
    Store(out + i, sum);
  }
};

template <class T, int kMaxParts>
void Sum(const KernelContext& context, std::span<const Tensor> parts, const Tensor& out) {
  SumParts<T, kMaxParts> sum;
  bool aligned = Aligned(out.data);
  sum.count = static_cast<int>(parts.size());
  sum.out = Elements<T>(out);
  for (size_t p = 0; p < parts.size(); ++p) {
    sum.parts[p] = Elements<T>(parts[p]);
    aligned = aligned && Aligned(parts[p].data);
  }
  ForEachElement(context, "SumInOrder", out.numel(), aligned, sum);
}

}  // namespace

void AddSumOfSquares(const KernelContext& context, Tensor x, Tensor sum) {
  const char* kernel = "AddSumOfSquares";
  const int64_t n = x.numel();
  if (n == 0) return;
  const int64_t blocks = (n + kSumOfSquaresBlock - 1) / kSumOfSquaresBlock;
  auto* sums = Workspace<double>(context, kernel, SumOfSquaresWorkspaceBytes(n));
  if (x.dtype == DType::f64)
    SquareBlocks<<<static_cast<unsigned>(blocks), kThreads, 0, Stream(context)>>>(Elements<double>(x), n, sums);
  else
    SquareBlocks<<<static_cast<unsigned>(blocks), kThreads, 0, Stream(context)>>>(Elements<float>(x), n, sums);
  CheckLaunch(kernel);
  AddBlocks<<<1, kThreads, 0, Stream(context)>>>(sums, blocks, Elements<double>(sum));
  CheckLaunch(kernel);
}

void SumInOrder(const KernelContext& context, std::span<const Tensor> parts, Tensor out) {
  detail::Check(parts.size() <= kManyParts, "SumInOrder",
                std::to_string(parts.size()) + " parts on a GPU, at most " + std::to_string(kManyParts) + " are done");
  DispatchFloating(out.dtype, "SumInOrder", [&](auto type) {
    using T = decltype(type);
    if (parts.size() <= kFewParts)
      Sum<T, kFewParts>(context, parts, out);
    else
      Sum<T, kManyParts>(context, parts, out);
  });
}

}  // namespace ds::cuda
