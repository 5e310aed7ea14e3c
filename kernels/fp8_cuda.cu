// Scaling and rounding to 8 bits: one pass over the matrix for its largest element, one that writes the codes, as they
// are or transposed through shared memory, so that both reads and writes are of whole lines.
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/fp8.h"
#include "kernels/fp8_math.h"

namespace ds::cuda {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = 256;
constexpr int kMostBlocks = 1024;  // of LargestKernel: as many atomics
constexpr int kLoads = 4;          // packs that a thread has under way

/// *largest = max(*largest, bits of max |x|). Two elements are compared at a time, as integers: bf16 without its sign
/// is ordered as they are, and NaN is above all numbers. A maximum does not depend on the order, so neither on atomics.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads) LargestKernel(const uint16_t* x, int64_t n, uint32_t* largest) {
  constexpr uint32_t kSizes = 0x7fff7fffu;
  uint32_t most = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if constexpr (kAligned) {
    const auto* packs = reinterpret_cast<const uint4*>(x);
    const int64_t count = n / 8;  // n is a multiple of 256
    for (int64_t i = first; i < count; i += kLoads * step) {
      uint4 loaded[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        const int64_t at = i + u * step;
        loaded[u] = at < count ? packs[at] : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        const uint32_t left = __vmaxu2(loaded[u].x & kSizes, loaded[u].y & kSizes);
        const uint32_t right = __vmaxu2(loaded[u].z & kSizes, loaded[u].w & kSizes);
        most = __vmaxu2(most, __vmaxu2(left, right));
      }
    }
  } else {
    for (int64_t i = first; i < n; i += step) most = __vmaxu2(most, x[i] & 0x7fffu);
  }
  most = max(most & 0xffffu, most >> 16);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, offset));
  __shared__ uint32_t warps[kThreads / 32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) most = max(most, warps[warp]);
  atomicMax(largest, most);
}

/// The codes of four elements, the first in the lowest byte. By the hardware's instruction where there is one: the same
/// rounding and saturation as detail::ToFp8, of numbers. Where the scale is NaN there are no others.
template <class Format>
__device__ inline uint32_t FourCodes(const Pack<Bf16, 4>& x, float scale) {
  constexpr uint32_t kNans = detail::kFp8Nan * 0x01010101u;
  constexpr auto kInterpretation = Format::kDType == DType::f8_e4m3 ? __NV_E4M3 : __NV_E5M2;
  if (scale != scale) return kNans;
  const float2 low{ToFloat(x[0]) * scale, ToFloat(x[1]) * scale};
  const float2 high{ToFloat(x[2]) * scale, ToFloat(x[3]) * scale};
  return static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, kInterpretation)) |
         static_cast<uint32_t>(__nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, kInterpretation)) << 16;
}

/// The scale of a matrix whose largest element is known; the first thread writes its inverse.
template <class Format>
__device__ inline float ScaleFrom(const uint32_t* largest, float* inverse_scale) {
  const detail::Fp8Scale scale = detail::Fp8ScaleOf<Format>(*largest);
  if (blockIdx.x == 0 && threadIdx.x == 0) *inverse_scale = scale.inverse;
  return scale.scale;
}

/// The block that this one stands for, from the end: what LargestKernel read last may still be in the cache.
__device__ inline int64_t BlockFromEnd() { return static_cast<int64_t>(gridDim.x) - 1 - blockIdx.x; }

/// A thread writes 16 codes; n is a multiple of 256.
template <class Format, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    QuantizeKernel(const Bf16* x, int64_t n, const uint32_t* largest, uint8_t* codes, float* inverse_scale) {
  const float scale = ScaleFrom<Format>(largest, inverse_scale);
  const int64_t i = (BlockFromEnd() * kThreads + threadIdx.x) * 16;
  if (i >= n) return;
  Pack<uint32_t, 4> words;
  const Pack<Bf16, 16> in = LoadRaw<16, kAligned>(x + i);
#pragma unroll
  for (int w = 0; w < 4; ++w)
    words[w] = FourCodes<Format>(Pack<Bf16, 4>{{in[4 * w], in[4 * w + 1], in[4 * w + 2], in[4 * w + 3]}}, scale);
  StoreRaw(reinterpret_cast<uint32_t*>(codes + i), words);
}

constexpr int kTileRows = 128, kTileColumns = 64;  // of x: 128 bytes of a row are read, 128 of a column are written
constexpr int kTileWords = kTileRows / 4;

/// A block transposes a tile. A thread turns squares of four rows and columns in registers; shared memory holds the
/// four codes of a column's four rows as a word, its rows one word longer than they need be, against bank conflicts.
/// rows and columns are multiples of 16, so that a square, and the 16 codes that a thread writes, are inside or
/// outside.
template <class Format, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    QuantizeTransposedKernel(const Bf16* x, int64_t rows, int64_t columns, const uint32_t* largest, uint8_t* codes,
                             float* inverse_scale) {
  __shared__ uint32_t tile[kTileColumns][kTileWords + 1];
  const float scale = ScaleFrom<Format>(largest, inverse_scale);
  const int64_t across = (columns + kTileColumns - 1) / kTileColumns;
  const int64_t block = BlockFromEnd();
  const int64_t first_row = block / across * kTileRows, first_column = block % across * kTileColumns;

  constexpr int kSquaresAcross = kTileColumns / 4, kSquaresDown = kThreads / kSquaresAcross;
  const int column = static_cast<int>(threadIdx.x) % kSquaresAcross * 4;
#pragma unroll
  for (int round = 0; round < kTileWords / kSquaresDown; ++round) {
    const int word = static_cast<int>(threadIdx.x) / kSquaresAcross + round * kSquaresDown;
    const int64_t row = first_row + 4 * word;
    if (row >= rows || first_column + column >= columns) continue;
    uint32_t square[4];  // of four rows
#pragma unroll
    for (int r = 0; r < 4; ++r)
      square[r] = FourCodes<Format>(LoadRaw<4, kAligned>(x + (row + r) * columns + first_column + column), scale);
    const uint32_t top_left = __byte_perm(square[0], square[1], 0x5140);  // columns 0 and 1 of rows 0 and 1
    const uint32_t bottom_left = __byte_perm(square[2], square[3], 0x5140);
    const uint32_t top_right = __byte_perm(square[0], square[1], 0x7362);  // columns 2 and 3
    const uint32_t bottom_right = __byte_perm(square[2], square[3], 0x7362);
    tile[column][word] = __byte_perm(top_left, bottom_left, 0x5410);
    tile[column + 1][word] = __byte_perm(top_left, bottom_left, 0x7632);
    tile[column + 2][word] = __byte_perm(top_right, bottom_right, 0x5410);
    tile[column + 3][word] = __byte_perm(top_right, bottom_right, 0x7632);
  }
  __syncthreads();

  constexpr int kThreadsPerColumn = kTileRows / 16;
  const int word = static_cast<int>(threadIdx.x) % kThreadsPerColumn * 4;
  const int64_t row = first_row + 4 * word;
  for (int c = static_cast<int>(threadIdx.x) / kThreadsPerColumn; c < kTileColumns; c += kThreads / kThreadsPerColumn) {
    if (row >= rows || first_column + c >= columns) continue;
    const Pack<uint32_t, 4> words{{tile[c][word], tile[c][word + 1], tile[c][word + 2], tile[c][word + 3]}};
    StoreRaw(reinterpret_cast<uint32_t*>(codes + (first_column + c) * rows + row), words);
  }
}

void FindLargest(const KernelContext& context, const Tensor& x, uint32_t* largest) {
  CheckCuda(cudaMemsetAsync(largest, 0, sizeof *largest, Stream(context)), "cudaMemsetAsync");
  const bool aligned = Aligned(x.data);
  const int64_t n = x.numel(), per_block = int64_t{kThreads} * (aligned ? 8 * kLoads : kLoads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((n + per_block - 1) / per_block, kMostBlocks));
  const auto* elements = static_cast<const uint16_t*>(x.data);
  if (aligned)
    LargestKernel<true><<<blocks, kThreads, 0, Stream(context)>>>(elements, n, largest);
  else
    LargestKernel<false><<<blocks, kThreads, 0, Stream(context)>>>(elements, n, largest);
  CheckLaunch("QuantizeFp8");
}

template <class Format, bool kAligned>
void WriteCodes(const KernelContext& context, const Tensor& x, bool transpose, const uint32_t* largest, uint8_t* codes,
                float* inverse_scale) {
  const int64_t rows = detail::Rows(x), columns = detail::Columns(x);
  const auto* elements = static_cast<const Bf16*>(x.data);
  if (transpose) {
    const int64_t tiles = ((rows + kTileRows - 1) / kTileRows) * ((columns + kTileColumns - 1) / kTileColumns);
    QuantizeTransposedKernel<Format, kAligned><<<static_cast<unsigned>(tiles), kThreads, 0, Stream(context)>>>(
        elements, rows, columns, largest, codes, inverse_scale);
  } else {
    constexpr int64_t kPerBlock = int64_t{kThreads} * 16;
    const auto blocks = static_cast<unsigned>((x.numel() + kPerBlock - 1) / kPerBlock);
    QuantizeKernel<Format, kAligned>
        <<<blocks, kThreads, 0, Stream(context)>>>(elements, x.numel(), largest, codes, inverse_scale);
  }
  CheckLaunch("QuantizeFp8");
}

}  // namespace

void QuantizeFp8(const KernelContext& context, Tensor x, bool transpose, Tensor codes, Tensor inverse_scale,
                 Tensor largest) {
  auto* bits = static_cast<uint32_t*>(largest.data);
  FindLargest(context, x, bits);
  detail::DispatchFp8(codes.dtype, "QuantizeFp8", [&](auto format) {
    using Format = decltype(format);
    auto* bytes = static_cast<uint8_t*>(codes.data);
    auto* inverse = static_cast<float*>(inverse_scale.data);
    if (Aligned(x.data))
      WriteCodes<Format, true>(context, x, transpose, bits, bytes, inverse);
    else
      WriteCodes<Format, false>(context, x, transpose, bits, bytes, inverse);
  });
}

}  // namespace ds::cuda
