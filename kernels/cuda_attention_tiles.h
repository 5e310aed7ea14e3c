// Tiles of heads between global memory, shared memory and the registers of tensor-core products (cuda_mma.h). Internal
// to the GPU kernels.
#pragma once

#include "kernels/cuda_attention.h"
#include "kernels/cuda_mma.h"

namespace ds::cuda {

/// Starts to copy rows [begin, begin + kRows) of a head into a tile of kColumns columns, by kThreads threads; what lies
/// behind the tokens and the head's size is 0. The copies belong to the group that CommitCopies ends.
template <int kRows, int kColumns, int kThreads, class T>
__device__ inline void LoadTile(T* tile, const AttentionLayout& at, HeadRows<const T> head, int begin) {
  constexpr int kPack = kPackSize<T>;
  if (at.aligned) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * (kColumns / kPack); i += kThreads) {
      const int row = i / (kColumns / kPack), column = i % (kColumns / kPack) * kPack;
      const bool valid = begin + row < at.tokens && column < at.head_size;
      CopyAsync(tile + row * TileStride<T>(kColumns) + column,
                valid ? head.first + (begin + row) * head.stride + column : head.first, valid);
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kColumns; i += kThreads) {
      const int row = i / kColumns, column = i % kColumns;
      const bool valid = begin + row < at.tokens && column < at.head_size;
      tile[row * TileStride<T>(kColumns) + column] =
          valid ? head.first[(begin + row) * head.stride + column] : Converted<T>(0.0f);
    }
  }
}

/// Writes a warp's 16 x 8 kTiles product times `factor` of each of the lane's two rows, rounded to T, to rows [begin,
/// begin + 16) and columns [first_column, first_column + 8 kTiles) of a head. `tile`: 16 rows of shared memory that no
/// other warp uses.
template <class T, int kTiles>
__device__ inline void StoreProduct(const float (&c)[kTiles][4], const float (&factor)[2], T* tile,
                                    const AttentionLayout& at, HeadRows<T> head, int begin, int first_column) {
  constexpr int kColumns = 8 * kTiles, kStride = TileStride<T>(kColumns), kPack = kPackSize<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint32_t*>(tile + (lane / 4 + 8 * half) * kStride + t * 8 + lane % 4 * 2) =
          PackPair<T>(c[t][2 * half] * factor[half], c[t][2 * half + 1] * factor[half]);
  __syncwarp();
  const int columns = at.head_size - first_column;
  if (at.aligned) {
    for (int i = lane; i < 16 * (kColumns / kPack); i += kWarp) {
      const int row = i / (kColumns / kPack), column = i % (kColumns / kPack) * kPack;
      if (begin + row < at.tokens && column < columns)
        CopyPack<16>(tile + row * kStride + column, head.first + (begin + row) * head.stride + first_column + column);
    }
  } else {
    for (int i = lane; i < 16 * kColumns; i += kWarp) {
      const int row = i / kColumns, column = i % kColumns;
      if (begin + row < at.tokens && column < columns)
        head.first[(begin + row) * head.stride + first_column + column] = tile[row * kStride + column];
    }
  }
}

/// use(factor of probability index, of index + 1), by one block of random numbers where one has both.
template <class Use>
__device__ inline void ForPair(const AttentionMask& mask, uint64_t index, const Use& use) {
  const detail::PhiloxWords words = detail::PhiloxBlock(mask.stream, index / 4);
  const auto place = static_cast<int>(index % 4);
  const uint32_t first = place == 0 ? words.v[0] : place == 1 ? words.v[1] : place == 2 ? words.v[2] : words.v[3];
  uint32_t second = place == 0 ? words.v[1] : place == 1 ? words.v[2] : words.v[3];
  if (place == 3) second = detail::PhiloxBlock(mask.stream, index / 4 + 1).v[0];
  const auto scale = static_cast<float>(mask.scale);
  use(first >= mask.threshold ? scale : 0.0f, second >= mask.threshold ? scale : 0.0f);
}

/// body(integral_constant of the smallest width of tiles that has room for a head, bool_constant: kPacked).
template <class Body>
void DispatchHead(int head_size, bool packed, const Body& body) {
  const auto dispatch = [&](auto is_packed) {
    if (head_size <= 64)
      body(std::integral_constant<int, 64>{}, is_packed);
    else if (head_size <= 128)
      body(std::integral_constant<int, 128>{}, is_packed);
    else
      body(std::integral_constant<int, 256>{}, is_packed);
  };
  if (packed)
    dispatch(std::true_type{});
  else
    dispatch(std::false_type{});
}

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

}  // namespace ds::cuda
