// Kernels that work row by row: the threads of a row share its elements and add up sums over it. Internal to the GPU
// kernels.
//
// blockDim.x threads work on one row, blockDim.y rows are done by a block. Sums have an order that depends on the
// number of columns and the dtype alone.
#pragma once

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"

namespace ds::cuda {

/// Packs of a row that a thread keeps in registers. Eight, where they let a warp hold a row alone: what a row costs
/// beside its bytes, a block to start and barriers to pass, is as much as the bytes of a short one.
constexpr int kFewPacks = 4, kManyPacks = 8;
constexpr int kWarpRows = 4;         ///< rows of a block, where a warp holds a row
constexpr int kMaxRowThreads = 512;  ///< 128 registers for each

/// The most threads of a block of a kernel that keeps `packs` a thread.
constexpr int MaxThreadsOf(int packs) { return packs == kManyPacks ? kWarpRows * 32 : kMaxRowThreads; }

struct RowLaunch {
  dim3 grid, block;
};

/// For rows of `columns` elements that are moved in packs of `pack`, `packs` of them kept: as few threads as hold a row
/// in their registers; a warp at least, which is the fastest (no barriers).
inline RowLaunch LaunchForRows(int64_t rows, int64_t columns, int pack, int packs) {
  int threads = 32;
  while (threads < MaxThreadsOf(packs) && int64_t{threads} * packs * pack < columns) threads *= 2;
  const int rows_per_block = threads == 32 ? kWarpRows : 1;
  return {dim3(static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block)),
          dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows_per_block))};
}

/// body(T{}, pack, aligned, packs) for kernels over rows of `columns` elements. `pack`, a constant: elements that a
/// thread takes together, 16 bytes of them where that divides a row. `aligned`, a constant: they can be moved as such;
/// the order of a sum does not depend on it. `packs`, a constant: how many a thread keeps in registers.
template <class Body>
void DispatchRows(DType dtype, const char* kernel, int64_t columns, bool aligned, const Body& body) {
  DispatchFloating(dtype, kernel, [&](auto type) {
    constexpr int kPack = kPackSize<decltype(type)>;
    const std::integral_constant<int, kFewPacks> few;
    const auto with = [&](auto packs) {
      const std::integral_constant<int, kPack> pack;
      if (aligned)
        body(type, pack, std::true_type{}, packs);
      else
        body(type, pack, std::false_type{}, packs);
    };
    if (columns % kPack != 0) return body(type, std::integral_constant<int, 1>{}, std::true_type{}, few);
    if constexpr (sizeof(type) == 2)
      if (columns > 32 * kFewPacks * kPack && columns <= 32 * kManyPacks * kPack)
        return with(std::integral_constant<int, kManyPacks>{});
    with(few);
  });
}

/// kernel(rows, columns, arguments...) on threads for all rows. `pack`, `packs`: what the kernel was made for.
template <int pack, int packs, class... Parameters, class... Arguments>
void LaunchRows(const KernelContext& context, const char* name, int64_t rows, int64_t columns,
                void (*kernel)(int64_t, int64_t, Parameters...), const Arguments&... arguments) {
  if (rows == 0 || columns == 0) return;
  const RowLaunch launch = LaunchForRows(rows, columns, pack, packs);
  kernel<<<launch.grid, launch.block, 0, Stream(context)>>>(rows, columns, arguments...);
  CheckLaunch(name);
}

/// The row of this thread.
__device__ inline int64_t Row() { return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; }

/// Adds up K values over the threads of a row: halves of a warp, then warps in order. All of them get the sums.
template <class A, int K>
__device__ void SumOverRow(A (&values)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) values[k] += __shfl_xor_sync(0xffffffffu, values[k], offset);
  if (blockDim.x == 32) return;
  __shared__ A warps[K][kMaxRowThreads / 32];
  __syncthreads();  // the last sums were read
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int k = 0; k < K; ++k) warps[k][threadIdx.x / 32] = values[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    values[k] = warps[k][0];
    for (unsigned w = 1; w < blockDim.x / 32; ++w) values[k] += warps[k][w];
  }
}

/// The pack itself. The compiler takes it for another, and so does not keep in registers, from one pass over a row to
/// the next, what 16-bit elements were converted to: twice the registers of the elements.
template <class T, int N>
__device__ Pack<T, N> Anew(Pack<T, N> pack) {
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    uint32_t words[N / 2];
    memcpy(words, &pack, sizeof words);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) asm volatile("" : "+r"(words[i]));
    memcpy(&pack, words, sizeof words);
  }
  return pack;
}

/// The same row of R matrices, read once, all at the same time: what does not fit into registers is read again on
/// every pass. The row of a matrix that is not there is null, and its values are undefined.
template <class T, int N, bool kAligned, int kPacks, int R>
class RowReader {
 public:
  __device__ RowReader(const T* const (&rows)[R], int64_t columns) : columns_(columns) {
#pragma unroll
    for (int r = 0; r < R; ++r) rows_[r] = rows[r];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t column = Column(p);
      if (column < columns_) {
#pragma unroll
        for (int r = 0; r < R; ++r)
          if (rows_[r]) packs_[p][r] = LoadRaw<N, kAligned>(rows_[r] + column);
      }
    }
  }

  /// body(column, values): values[r] are the elements [column, column + N) of row r.
  template <class Body>
  __device__ void ForEach(const Body& body) const {
    Pack<Acc<T>, N> values[R];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t column = Column(p);
      if (column >= columns_) return;
#pragma unroll
      for (int r = 0; r < R; ++r) values[r] = ConvertPack<Acc<T>>(Anew(packs_[p][r]));
      body(column, values);
    }
    for (int64_t column = Column(kPacks); column < columns_; column += static_cast<int64_t>(blockDim.x) * N) {
#pragma unroll
      for (int r = 0; r < R; ++r)
        if (rows_[r]) values[r] = Load<N, kAligned>(rows_[r] + column);
      body(column, values);
    }
  }

 private:
  __device__ int64_t Column(int pack) const { return (static_cast<int64_t>(pack) * blockDim.x + threadIdx.x) * N; }

  const T* rows_[R];
  int64_t columns_;
  Pack<T, N> packs_[kPacks][R];
};

}  // namespace ds::cuda
