// Sums over the rows of a matrix, one a column, in the order of the CPU's (column_sums.h): the same bits for the same
// terms. Internal to the GPU kernels.
#pragma once

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/workspace.h"

namespace ds::cuda {

constexpr int kColumnThreads = 128;

/// Where the S sums of columns go. `into` is the results or, block after block, the workspace.
template <class A, int S>
struct ColumnOutputs {
  A* into[S];
};

/// A thread sums N columns over the kRowsPerPartialSum rows of its block: terms.Add<N>(row, column, sums) adds what the
/// row gives to each of its S sums.
template <int N, class A, int S, class Terms>
__global__ void __launch_bounds__(kColumnThreads)
    SumRowBlocks(int64_t rows, int64_t columns, Terms terms, ColumnOutputs<A, S> out, bool accumulate) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kColumnThreads + threadIdx.x) * N;
  if (column >= columns) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kRowsPerPartialSum;
  const int64_t end = min(rows, begin + kRowsPerPartialSum);
  A sums[S][N] = {};
#pragma unroll 8
  for (int64_t row = begin; row < end; ++row) terms.template Add<N>(row, column, sums);
#pragma unroll
  for (int s = 0; s < S; ++s) {
    A* to = out.into[s] + static_cast<int64_t>(blockIdx.x) * columns + column;
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = accumulate ? to[i] + sums[s][i] : sums[s][i];
  }
}

constexpr int kTileColumns = 32, kTileRows = 128, kTileThreads = 256;

/// Adds up the blocks' sums in order: all threads bring a tile of them, one a column adds. blockIdx.y: which of S sums.
template <class A, int S>
__global__ void __launch_bounds__(kTileThreads)
    SumBlocks(int64_t blocks, int64_t columns, ColumnOutputs<A, S> parts, ColumnOutputs<A, S> out, bool accumulate) {
  __shared__ A tile[kTileRows][kTileColumns];
  constexpr int kRowsTogether = kTileThreads / kTileColumns;
  const int mine = threadIdx.x % kTileColumns, first = threadIdx.x / kTileColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTileColumns + mine;
  const A* part = parts.into[blockIdx.y] + column;
  A total = 0;
  for (int64_t begin = 0; begin < blocks; begin += kTileRows) {
#pragma unroll
    for (int r = 0; r < kTileRows; r += kRowsTogether)
      if (column < columns && begin + r + first < blocks) tile[r + first][mine] = part[(begin + r + first) * columns];
    __syncthreads();
    if (first == 0) {
      const int rows = static_cast<int>(min(int64_t{kTileRows}, blocks - begin));
#pragma unroll 8
      for (int r = 0; r < rows; ++r) total += tile[r][mine];
    }
    __syncthreads();
  }
  if (first != 0 || column >= columns) return;
  A* to = out.into[blockIdx.y] + column;
  *to = accumulate ? *to + total : total;
}

/// out.into[s][j] (+)= sum over rows of what terms.Add<N>(row, column, sums) adds to sums[s][j - column] for the
/// columns [column, column + N), N being kPack (DispatchPacks). Workspace: ColumnSumsWorkspaceBytes.
template <int kPack, class A, int S, class Terms>
void SumOverRows(const KernelContext& context, const char* kernel, int64_t rows, int64_t columns, const Terms& terms,
                 const ColumnOutputs<A, S>& out, bool accumulate) {
  if (columns == 0) return;
  const int64_t blocks = rows > 0 ? (rows + kRowsPerPartialSum - 1) / kRowsPerPartialSum : 1;
  ColumnOutputs<A, S> parts = out;
  if (blocks > 1) {
    A* workspace = Workspace<A>(context, kernel, blocks * columns * S * static_cast<int64_t>(sizeof(A)));
    for (int s = 0; s < S; ++s) parts.into[s] = workspace + s * blocks * columns;
  }
  const int64_t per_block = int64_t{kColumnThreads} * kPack;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>((columns + per_block - 1) / per_block));
  const bool add = accumulate && blocks == 1;
  SumRowBlocks<kPack><<<grid, kColumnThreads, 0, Stream(context)>>>(rows, columns, terms, parts, add);
  CheckLaunch(kernel);
  if (blocks == 1) return;
  const dim3 tiles(static_cast<unsigned>((columns + kTileColumns - 1) / kTileColumns), S);
  SumBlocks<<<tiles, kTileThreads, 0, Stream(context)>>>(blocks, columns, parts, out, accumulate);
  CheckLaunch(kernel);
}

}  // namespace ds::cuda
