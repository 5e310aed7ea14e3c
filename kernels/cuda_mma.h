// Matrix products of 16-bit numbers on tensor cores, a warp at a time, on tiles in shared memory (PTX ISA:
// mma.m16n8k16, ldmatrix, cp.async). Internal to the GPU kernels.
//
// A warp's product c has 16 rows and 8 * kTiles columns, held as float c[kTiles][4]: lane l has of each tile of 8
// columns the elements (l / 4, 2 (l % 4) + {0, 1}) and (l / 4 + 8, the same columns). Tiles in shared memory are
// row-major with TileStride(columns) elements from row to row, so that ldmatrix meets no bank conflicts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_types.h"

namespace ds::cuda {

constexpr int kWarp = 32;

/// Elements of T from one row of a tile to the next.
template <class T>
constexpr int TileStride(int columns) {
  return columns + kPackSize<T>;
}

__device__ inline uint32_t SharedAddress(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

/// Copies 16 bytes to shared memory in the background, or writes zeros when !valid.
__device__ inline void CopyAsync(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// Ends a group of copies.
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until of this thread's groups at most the newest `kPending` are under way.
template <int kPending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

/// c += a b for a of 16 x 16 and b of 16 x 8.
template <class T>
__device__ inline void MultiplyTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c = a b^T for tiles a of 16 x kDepth and b of 8 kTiles x kDepth.
template <int kDepth, class T, int kTiles>
__device__ inline void MultiplyTransposed(float (&c)[kTiles][4], const T* a, const T* b) {
  constexpr int kStride = TileStride<T>(kDepth);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* a_row = a + lane % 16 * kStride + lane / 16 * 8;
  const T* b_row = b + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int e = 0; e < 4; ++e) c[t][e] = 0;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    uint32_t left[4];
    LoadMatrices(left, a_row + k);
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      uint32_t right[4];
      LoadMatrices(right, b_row + t * 8 * kStride + k);
      MultiplyTile<T>(c[t], left, right[0], right[1]);
      MultiplyTile<T>(c[t + 1], left, right[2], right[3]);
    }
  }
}

/// The left operand of a product that is itself a product of 16 rows and 16 * kSteps columns, rounded to T.
template <int kSteps>
struct LeftOperand {
  uint32_t v[kSteps][4];
};

template <class T>
__device__ inline uint32_t PackPair(float first, float second) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

template <class T, int kTiles>
__device__ inline LeftOperand<kTiles / 2> ToLeftOperand(const float (&c)[kTiles][4]) {
  LeftOperand<kTiles / 2> a;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int half = 0; half < 2; ++half) a.v[t / 2][t % 2 * 2 + half] = PackPair<T>(c[t][2 * half], c[t][2 * half + 1]);
  return a;
}

/// c += a b for a tile b of 16 kSteps rows, kStride elements from row to row; c's columns are b's first 8 kTiles.
template <int kStride, class T, int kSteps, int kTiles>
__device__ inline void AddProduct(float (&c)[kTiles][4], const LeftOperand<kSteps>& a, const T* b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* b_row = b + lane % 16 * kStride + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int t = 0; t < kTiles; t += 2) {
      uint32_t right[4];
      LoadMatricesTransposed(right, b_row + k * 16 * kStride + t * 8);
      MultiplyTile<T>(c[t], a.v[k], right[0], right[1]);
      MultiplyTile<T>(c[t + 1], a.v[k], right[2], right[3]);
    }
}

/// 2^x to 2 ulp; 0 for x of -infinity. Denormal results are 0.
__device__ inline float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace ds::cuda
