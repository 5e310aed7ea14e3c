#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/reduce.h"
#include "kernels/workspace.h"

namespace ds::cuda {
namespace {

constexpr int kLanes = 16;   ///< of the order in reduce.h, as is kSumOfSquaresBlock
constexpr int kTerms = 128;  ///< of a launch: their table is a parameter of the kernel, of less than 4 KB
constexpr unsigned kAll = 0xffffffffu;

/// A term of the list, and where its blocks' sums begin in the workspace.
struct Term {
  Tensor x;
  double* sum;
  int64_t blocks, place;
};

/// Terms of one dtype, none of them empty; their blocks are numbered through.
template <class T>
struct SquareTable {
  const T* x[kTerms];
  int64_t n[kTerms];
  double* sums[kTerms];    ///< of the term's blocks
  unsigned first[kTerms];  ///< the term's first block
  int count;
  unsigned blocks;  ///< of all
};

static_assert(sizeof(SquareTable<double>) <= 4096, "what a kernel's parameters may take");

/// sum + [v * v]. The square of an fp32 is exact in fp64, so that one fused operation rounds alike.
__device__ inline double AddSquare(double sum, float v) {
  return fma(static_cast<double>(v), static_cast<double>(v), sum);
}
__device__ inline double AddSquare(double sum, double v) { return sum + v * v; }

constexpr int kTileBytes = 2048;                                     ///< of a block of numbers, on their way together
constexpr int kStages = 4;                                           ///< tiles of a block in shared memory
constexpr int kCopyBytes = 16;                                       ///< that a lane copies at a time
constexpr int kPadBytes = kLanes * static_cast<int>(sizeof(float));  ///< so that the two blocks' lanes use all 32 banks

/// The sums of squares of two blocks of kSumOfSquaresBlock numbers. A warp is on its own: sixteen of its threads are
/// the lanes of one block, sixteen of the other, and each adds its lane in order. The additions depend on each other,
/// so what a GPU needs is many warps whose numbers come in time: each keeps kStages - 1 tiles of both blocks (12 KB)
/// coming, by cp.async, in pieces of 16 bytes unless the numbers stand at other addresses.
template <class T>
__global__ void __launch_bounds__(2 * kLanes) SquareBlocks(const __grid_constant__ SquareTable<T> table) {
  constexpr int kTile = kTileBytes / static_cast<int>(sizeof(T)), kCopy = kCopyBytes / static_cast<int>(sizeof(T));
  __shared__ alignas(16) T tiles[kStages][2][kTile + kPadBytes / static_cast<int>(sizeof(T))];
  const int lane = static_cast<int>(threadIdx.x) % kLanes, half = static_cast<int>(threadIdx.x) / kLanes;
  const unsigned block = blockIdx.x * 2 + half;
  int term = 0;  // whose block it is: the last that begins with it or before it
  for (int step = kTerms / 2; step > 0; step /= 2)
    if (term + step < table.count && table.first[term + step] <= block) term += step;
  const int64_t begin = static_cast<int64_t>(block - table.first[term]) * kSumOfSquaresBlock;
  const bool exists = block < table.blocks;  // the second of the last two may not
  const int count = exists ? static_cast<int>(min(kSumOfSquaresBlock, table.n[term] - begin)) : 0;
  const T* numbers = table.x[term] + (exists ? begin : 0);
  const bool aligned = reinterpret_cast<uintptr_t>(numbers) % kCopyBytes == 0;

  const auto fetch = [&](int tile) {
    const int left = count - tile * kTile;
    const T* from = numbers + tile * kTile;
    T* to = tiles[tile % kStages][half];
    if (aligned && left >= kTile) {
#pragma unroll
      for (int at = 0; at < kTile; at += kLanes * kCopy)
        __pipeline_memcpy_async(to + at + lane * kCopy, from + at + lane * kCopy, kCopyBytes);
    } else {
#pragma unroll 4
      for (int at = lane; at < min(left, kTile); at += kLanes) __pipeline_memcpy_async(to + at, from + at, sizeof(T));
    }
    __pipeline_commit();
  };
  const int mine = (count + kTile - 1) / kTile, tile_count = max(mine, __shfl_xor_sync(kAll, mine, kLanes));
  for (int tile = 0; tile < kStages - 1; ++tile) fetch(tile);
  double sum = 0;
  for (int tile = 0; tile < tile_count; ++tile) {
    __pipeline_wait_prior(kStages - 2);
    __syncwarp();  // the tile is there for all lanes, and the one before it was read by all
    fetch(tile + kStages - 1);
    const T* lanes = tiles[tile % kStages][half];
    if (count - tile * kTile >= kTile) {
#pragma unroll
      for (int i = 0; i < kTile; i += kLanes) sum = AddSquare(sum, lanes[i + lane]);
    } else {
      for (int i = lane; i < count - tile * kTile; i += kLanes) sum = AddSquare(sum, lanes[i]);
    }
  }
  double total = 0;
#pragma unroll
  for (int l = 0; l < kLanes; ++l) total += __shfl_sync(kAll, sum, l, kLanes);
  if (lane == 0 && exists) table.sums[term][block - table.first[term]] = total;
}

/// Terms in order of their sums; those of one sum in the list's order.
struct SumTable {
  double* sum[kTerms];
  const double* blocks[kTerms];  ///< the sums of the term's blocks
  unsigned block_count[kTerms];
  int count;
};

constexpr int kWarp = 32;
constexpr int kSumWarps = 8;
constexpr int kAhead = 4;  ///< numbers that a thread holds: they arrive while those before them are added

/// blocks[0] + blocks[1] + ..., in order, by a warp: all of it brings numbers, and each thread adds them all.
__device__ inline double SumOfBlocks(const double* blocks, unsigned count) {
  const unsigned lane = threadIdx.x % kWarp;
  double next[kAhead], now[kAhead], total = 0;
  const auto load = [&](unsigned begin) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const unsigned at = begin + k * kWarp + lane;
      next[k] = at < count ? blocks[at] : 0.0;  // added, 0 changes no sum of squares
    }
  };
  load(0);
  for (unsigned begin = 0; begin < count; begin += kAhead * kWarp) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) now[k] = next[k];
    load(begin + kAhead * kWarp);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (begin + k * kWarp >= count) break;
#pragma unroll
      for (int i = 0; i < kWarp; ++i) total += __shfl_sync(kAll, now[k], i);
    }
  }
  return total;
}

/// Adds the terms of one sum to it: the block of its first term does, the others' have nothing to do. A warp adds up
/// the blocks of a term, kSumWarps terms at a time.
__global__ void __launch_bounds__(kSumWarps* kWarp) AddTerms(const __grid_constant__ SumTable table) {
  __shared__ double totals[kSumWarps];
  const int begin = static_cast<int>(blockIdx.x), warp = static_cast<int>(threadIdx.x) / kWarp;
  double* const sum = table.sum[begin];
  if (begin > 0 && table.sum[begin - 1] == sum) return;
  int end = begin + 1;
  while (end < table.count && table.sum[end] == sum) ++end;
  double result = *sum;
  for (int first = begin; first < end; first += kSumWarps) {
    if (first + warp < end) {
      const double total = SumOfBlocks(table.blocks[first + warp], table.block_count[first + warp]);
      if (threadIdx.x % kWarp == 0) totals[warp] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < min(kSumWarps, end - first); ++i) result += totals[i];
    __syncthreads();  // before the next terms' totals take their place
  }
  if (threadIdx.x == 0) *sum = result;
}

/// One launch over all blocks of the terms of T, or several where there are more terms than a table holds.
template <class T>
void LaunchSquares(const KernelContext& context, const char* kernel, const std::vector<Term>& terms, DType dtype,
                   double* workspace) {
  SquareTable<T> table = {};
  const auto launch = [&] {
    if (table.count == 0) return;
    SquareBlocks<T><<<(table.blocks + 1) / 2, 2 * kLanes, 0, Stream(context)>>>(table);
    CheckLaunch(kernel);
    table.count = 0, table.blocks = 0;
  };
  for (const Term& term : terms) {
    if (term.x.dtype != dtype || term.blocks == 0) continue;
    table.x[table.count] = Elements<const T>(term.x);
    table.n[table.count] = term.x.numel();
    table.sums[table.count] = workspace + term.place;
    table.first[table.count] = table.blocks;
    table.blocks += static_cast<unsigned>(term.blocks);
    if (++table.count == kTerms) launch();
  }
  launch();
}

}  // namespace

void AddSumsOfSquares(const KernelContext& context, std::span<const SquareTerm> list) {
  const char* kernel = "AddSumsOfSquares";
  std::vector<Term> terms;
  int64_t blocks = 0;
  for (const SquareTerm& term : list) {
    const int64_t bytes = SumOfSquaresWorkspaceBytes(term.x.numel());
    terms.push_back({term.x, Elements<double>(term.sum), bytes / 8, blocks});
    blocks += terms.back().blocks;
  }
  auto* workspace = Workspace<double>(context, kernel, blocks * 8);
  LaunchSquares<float>(context, kernel, terms, DType::f32, workspace);
  LaunchSquares<double>(context, kernel, terms, DType::f64, workspace);

  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return std::less<double*>()(a.sum, b.sum); });
  SumTable table = {};
  for (size_t i = 0; i < terms.size(); ++i) {
    table.sum[table.count] = terms[i].sum;
    table.blocks[table.count] = workspace + terms[i].place;
    table.block_count[table.count] = static_cast<unsigned>(terms[i].blocks);
    if (++table.count < kTerms && i + 1 < terms.size()) continue;
    AddTerms<<<static_cast<unsigned>(table.count), kSumWarps * kWarp, 0, Stream(context)>>>(table);
    CheckLaunch(kernel);
    table.count = 0;
  }
}

}  // namespace ds::cuda
