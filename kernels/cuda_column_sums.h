// Sums over the rows of a matrix, one a column, in the order of the CPU's (column_sums.h): the same bits for the same
// terms. Internal to the GPU kernels.
//
// Terms is what is summed:
//
//   template <int N> struct Row {...};                               N columns of a row, as they are in memory
//   static constexpr int kColumnBytes;                               of one column of a row
//   Row<N> Load<N>(int64_t row, int64_t column) const;
//   void Add<N>(const Row<N>&, A (&sums)[S][N]) const;               what the row gives to each of the S sums
#pragma once

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/workspace.h"

namespace ds::cuda {

/// Where the S sums of columns go.
template <class A, int S>
struct ColumnOutputs {
  A* into[S];
};

/// Threads of a block, and blocks that an SM is to have room for. Told of them, the compiler takes up to 96 registers
/// and leaves all loads in front of the additions; else it saves registers, and waits for one row at a time.
constexpr int kColumnThreads = 128, kColumnBlocks = 5;
/// Bytes that a thread has on their way before it adds the first of them, and rows that they may be of. Memory answers
/// after about a microsecond, in which an H200 moves 23 KB an SM: a few hundred threads that each asked for so much.
constexpr int kBytesAhead = 128, kMostRowsAhead = 16;
/// Fewer threads than these, with 16 bytes of a row each, leave much of a GPU idle: they take 4 bytes then.
constexpr int64_t kManyThreads = 64 * 1024;

/// A thread sums N columns over the kRowsPerPartialSum rows of a block; threads go through the columns of one block,
/// then of the next. `parts`: [S][blocks][columns], aligned to 16 bytes, gets the sums; null: there is one block, and
/// they go to, or are added to, `out`.
template <int N, class A, int S, class Terms>
__global__ void __launch_bounds__(kColumnThreads, kColumnBlocks)
    SumRowBlocks(int64_t rows, int64_t columns, int64_t blocks, const Terms terms, A* parts,
                 const ColumnOutputs<A, S> out, bool accumulate) {
  constexpr int kRows = std::max(1, std::min(kMostRowsAhead, kBytesAhead / (N * Terms::kColumnBytes)));
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  const int64_t per_block = columns / N, block = thread / per_block, column = (thread - block * per_block) * N;
  if (block >= blocks) return;
  const int64_t begin = block * kRowsPerPartialSum;
  const int count = static_cast<int>(min(kRowsPerPartialSum, rows - begin));
  A sums[S][N] = {};
  int row = 0;
  for (; row + kRows <= count; row += kRows) {
    typename Terms::template Row<N> ahead[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) ahead[r] = terms.template Load<N>(begin + row + r, column);
#pragma unroll
    for (int r = 0; r < kRows; ++r) terms.template Add<N>(ahead[r], sums);
  }
  for (; row < count; ++row) terms.template Add<N>(terms.template Load<N>(begin + row, column), sums);
#pragma unroll
  for (int s = 0; s < S; ++s) {
    if (parts) {
      Pack<A, N> sum;
#pragma unroll
      for (int i = 0; i < N; ++i) sum[i] = sums[s][i];
      StoreRaw(parts + (s * blocks + block) * columns + column, sum);
    } else {
      A* to = out.into[s] + column;
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = accumulate ? to[i] + sums[s][i] : sums[s][i];
    }
  }
}

constexpr int kTileColumns = 32, kTileBytes = 16384, kTileStages = 3;
constexpr int kTileLoaders = 256;  ///< threads of a block that bring tiles, beside the warp that adds

/// Adds up the blocks' sums in order, blockIdx.y being which of S: a thread of the last warp does a column. An addition
/// waits for the one before it, so all else is kept out of its way: the other threads have kTileStages - 1 tiles on
/// their way, and each is long enough that to meet for the next costs little.
template <class A, int S>
__global__ void __launch_bounds__(kTileLoaders + kTileColumns)
    SumBlocks(int64_t blocks, int64_t columns, const A* parts, const __grid_constant__ ColumnOutputs<A, S> out,
              bool accumulate) {
  constexpr int kRows = kTileBytes / (kTileColumns * static_cast<int>(sizeof(A)));
  __shared__ alignas(16) A tiles[kTileStages][kRows][kTileColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const bool adds = thread >= kTileLoaders;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTileColumns;
  const int width = static_cast<int>(min(int64_t{kTileColumns}, columns - first));
  const A* part = parts + blockIdx.y * blocks * columns + first;
  const int64_t tile_count = (blocks + kRows - 1) / kRows;
  const auto rows_of = [&](int64_t tile) { return static_cast<int>(min(int64_t{kRows}, blocks - tile * kRows)); };
  const auto fetch = [&](int64_t tile, auto pack) {  // pieces of `pack` numbers; they divide the columns
    constexpr int kPieces = kTileColumns / pack, kRowsTogether = kTileLoaders / kPieces;
    const int column = thread % kPieces * pack, r = thread / kPieces;
    if (column >= width) return;
    const A* from = part + (tile * kRows + r) * columns + column;
    const int rows = rows_of(tile), stage = static_cast<int>(tile % kTileStages);
#pragma unroll
    for (int i = 0; i < kRows; i += kRowsTogether)
      if (r + i < rows) __pipeline_memcpy_async(&tiles[stage][r + i][column], from + i * columns, pack * sizeof(A));
  };
  const auto bring = [&](int64_t tile) {
    if (tile < tile_count && !adds) {
      if (columns % kPackSize<A> == 0)
        fetch(tile, std::integral_constant<int, kPackSize<A>>{});
      else
        fetch(tile, std::integral_constant<int, 1>{});
    }
    __pipeline_commit();
  };
  for (int tile = 0; tile < kTileStages - 1; ++tile) bring(tile);
  const int mine = thread - kTileLoaders;
  A total = 0;
  for (int64_t tile = 0; tile < tile_count; ++tile) {
    __pipeline_wait_prior(kTileStages - 2);
    __syncthreads();  // the tile is there, and the one before it was read
    bring(tile + kTileStages - 1);
    if (!adds) continue;
    const A(&numbers)[kRows][kTileColumns] = tiles[tile % kTileStages];
    const int rows = rows_of(tile);
    if (rows == kRows) {
#pragma unroll 32
      for (int r = 0; r < kRows; ++r) total += numbers[r][mine];
    } else {
      for (int r = 0; r < rows; ++r) total += numbers[r][mine];
    }
  }
  if (!adds || mine >= width) return;
  A* to = out.into[blockIdx.y] + first + mine;
  *to = accumulate ? *to + total : total;
}

/// out.into[s][j] (+)= sum over rows of what terms adds to the s-th sum for column j. kPack (DispatchPacks): columns of
/// a row that a thread may load together. Workspace: ColumnSumsWorkspaceBytes.
template <int kPack, class A, int S, class Terms>
void SumOverRows(const KernelContext& context, const char* kernel, int64_t rows, int64_t columns, const Terms& terms,
                 const ColumnOutputs<A, S>& out, bool accumulate) {
  if (columns == 0) return;
  const int64_t blocks = rows > 0 ? (rows + kRowsPerPartialSum - 1) / kRowsPerPartialSum : 1;
  A* parts = nullptr;
  if (blocks > 1) parts = Workspace<A>(context, kernel, blocks * columns * S * static_cast<int64_t>(sizeof(A)));
  const auto sum_blocks_of_rows = [&](auto pack) {
    const int64_t threads = blocks * (columns / pack);
    SumRowBlocks<pack><<<static_cast<unsigned>((threads + kColumnThreads - 1) / kColumnThreads), kColumnThreads, 0,
                         Stream(context)>>>(rows, columns, blocks, terms, parts, out, accumulate);
    CheckLaunch(kernel);
  };
  constexpr int kFew = kPack > 4 ? 2 : 1;  // 4 bytes of 16 bits, or one number
  if (blocks * (columns / kPack) >= kManyThreads)
    sum_blocks_of_rows(std::integral_constant<int, kPack>{});
  else
    sum_blocks_of_rows(std::integral_constant<int, kFew>{});
  if (!parts) return;
  const dim3 tiles(static_cast<unsigned>((columns + kTileColumns - 1) / kTileColumns), S);
  SumBlocks<<<tiles, kTileLoaders + kTileColumns, 0, Stream(context)>>>(blocks, columns, static_cast<const A*>(parts),
                                                                        out, accumulate);
  CheckLaunch(kernel);
}

}  // namespace ds::cuda
