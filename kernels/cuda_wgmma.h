// Matrix products of 16-bit numbers by warpgroups, four warps together (PTX ISA: wgmma.mma_async), from tiles in shared
// memory. Hopper alone, compiled for sm_90a. Internal to the GPU kernels.
//
// A product c has 64 rows and 64 columns, held as float c[8][4]: warp w of the warpgroup has rows 16 w to 16 w + 15,
// and a lane of it the elements that cuda_mma.h describes. The left operand lies in registers, as LeftOperand there.
//
// The right operand is a WideTile: rows of 64 elements, 128 bytes, whose eight pieces of 16 bytes change places by the
// number of the row ("128-byte swizzle": piece p of row r is at place p ^ (r % 8)), so that neither reading rows nor
// columns meets bank conflicts. It starts at a multiple of 1024 bytes.
//
// Products are asynchronous: between Begin() and the wait that follows Commit(), nothing may touch c, the left operand
// or the tile.
#pragma once

#include "kernels/cuda_mma.h"

namespace ds::cuda::wgmma {

constexpr int kThreads = 128;  ///< of a warpgroup
constexpr int kRowBytes = 128;

/// Where piece `piece` of row `row` of a WideTile lies, in bytes.
__device__ inline int PlaceOf(int row, int piece) { return row * kRowBytes + ((piece ^ (row % 8)) << 4); }

/// What the instruction takes for a WideTile ("matrix descriptor"): its address, 1024 bytes from eight rows to the
/// next, the swizzle. The other stride is of tiles that are wider.
__device__ inline uint64_t Describe(const void* tile) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kStride = uint64_t{1024 >> 4} << 32, kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kStride | kUnused | ((SharedAddress(tile) & 0x3ffff) >> 4);
}
constexpr uint64_t kSixteenColumns = 32 >> 4;           ///< to the next 16 columns of a tile
constexpr uint64_t kSixteenRows = 16 * kRowBytes >> 4;  ///< to its next 16 rows

/// Rows [0, 64) of a WideTile as the left operand of the calling warpgroup.
template <class T>
__device__ inline LeftOperand<4> LoadLeft(const T* tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  const char* bytes = reinterpret_cast<const char*>(tile);
  LeftOperand<4> a;
#pragma unroll
  for (int k = 0; k < 4; ++k) LoadMatrices(a.v[k], bytes + PlaceOf(warp * 16 + lane % 16, 2 * k + lane / 16));
  return a;
}

/// Makes what threads wrote to shared memory visible to products; then a barrier must follow.
__device__ inline void Publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Keeps the compiler from moving uses of c over this place.
template <int kTiles>
__device__ inline void Pin(float (&c)[kTiles][4]) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[t][e])::"memory");
}
template <int kSteps>
__device__ inline void Pin(LeftOperand<kSteps>& a) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(a.v[k][e])::"memory");
}

/// Before the first product that uses registers that were written since.
__device__ inline void Begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ inline void Commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until of the groups at most the newest `kPending` are under way.
template <int kPending>
__device__ inline void Wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// c (+)= a b^T or a b for 16 columns of a; `add`: c is kept. kTransposed: b's rows run along a's columns.
template <class T, bool kTransposed>
__device__ inline void Multiply16(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, int add) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
        "}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
          "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
          "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
          "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0)
        : "memory");
  else
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n"
        "}\n"
        : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), "+f"(c[1][2]),
          "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), "+f"(c[3][0]), "+f"(c[3][1]),
          "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]),
          "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]),
          "+f"(c[7][0]), "+f"(c[7][1]), "+f"(c[7][2]), "+f"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTransposed ? 1 : 0)
        : "memory");
}

/// c = a b^T: a of 64 x 64, a row of b gives a column of c.
template <class T>
__device__ inline void MultiplyTransposed(float (&c)[8][4], const LeftOperand<4>& a, const T* b) {
  const uint64_t tile = Describe(b);
#pragma unroll
  for (int k = 0; k < 4; ++k) Multiply16<T, false>(c, a.v[k], tile + k * kSixteenColumns, k);
}

/// c += a b: a of 64 x 64, b of 64 rows.
template <class T>
__device__ inline void AddProduct(float (&c)[8][4], const LeftOperand<4>& a, const T* b) {
  const uint64_t tile = Describe(b);
#pragma unroll
  for (int k = 0; k < 4; ++k) Multiply16<T, true>(c, a.v[k], tile + k * kSixteenRows, 1);
}

/// Takes registers that another warpgroup of the block gave, or gives some: each thread has `kRegisters` from here on.
/// By all threads of the warpgroup.
template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// A barrier in shared memory on which some threads arrive and others wait (PTX ISA: mbarrier). Waits name the parity
/// of the phase: 0, 1, 0, ...
class Barrier {
 public:
  /// By one thread, before a __syncthreads.
  __device__ void Start(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(Address()), "r"(arrivals) : "memory");
  }
  __device__ void Arrive() {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(Address()) : "memory");
  }
  /// Once all copies that this thread started before are done.
  __device__ void ArriveAfterCopies() {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(Address()) : "memory");
  }
  __device__ void Wait(int parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n"
        "}" ::"r"(Address()),
        "r"(parity)
        : "memory");
  }

 private:
  __device__ uint32_t Address() const { return SharedAddress(&word_); }
  uint64_t word_;
};

}  // namespace ds::cuda::wgmma
