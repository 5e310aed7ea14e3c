#include "kernels/cuda_check.h"
#include "kernels/cuda_types.h"
#include "kernels/matmul_fallback.h"

namespace ds::cuda {
namespace {

constexpr int kTile = 32;     // a block computes kTile x kTile of c
constexpr int kTileRows = 8;  // rows of threads in it: a thread computes kTile / kTileRows elements of a column

/// A matrix as rows and columns of op(x): element (row, column) is at row * row_stride + column * column_stride.
template <class T>
struct Operand {
  const T* data;
  int64_t row_stride, column_stride;
};

/// tile[r][c] = x(row + r, column + c), 0 beyond [rows, columns). Threads of a warp read along the unit stride.
template <class T>
__device__ void LoadTile(const Operand<T>& x, int64_t row, int64_t column, int64_t rows, int64_t columns,
                         Acc<T> (&tile)[kTile][kTile + 1]) {
  const bool across = x.column_stride == 1;
  for (int i = threadIdx.y; i < kTile; i += kTileRows) {
    const int r = across ? i : threadIdx.x, c = across ? threadIdx.x : i;
    const bool inside = row + r < rows && column + c < columns;
    tile[r][c] =
        inside ? Converted<Acc<T>>(x.data[(row + r) * x.row_stride + (column + c) * x.column_stride]) : Acc<T>(0);
  }
}

template <class T, class C>
__global__ void __launch_bounds__(kTile* kTileRows)
    MatMulKernel(int64_t m, int64_t n, int64_t k, Operand<T> a, Operand<T> b, C* c, int64_t ldc, Acc<T> alpha,
                 bool accumulate) {
  __shared__ Acc<T> a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  constexpr int kRows = kTile / kTileRows;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int64_t row = static_cast<int64_t>(blockIdx.y) * kTile; row < m;
       row += static_cast<int64_t>(gridDim.y) * kTile) {
    Acc<T> sums[kRows] = {};
    for (int64_t at = 0; at < k; at += kTile) {
      LoadTile(a, row, at, m, k, a_tile);
      LoadTile(b, at, column, k, n, b_tile);
      __syncthreads();
      for (int l = 0; l < kTile; ++l) {
        const Acc<T> right = b_tile[l][threadIdx.x];
#pragma unroll
        for (int i = 0; i < kRows; ++i) sums[i] = fma(a_tile[threadIdx.y + i * kTileRows][l], right, sums[i]);
      }
      __syncthreads();
    }
    const int64_t j = column + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t r = row + threadIdx.y + i * kTileRows;
      if (r >= m || j >= n) continue;
      C* to = c + r * ldc + j;
      const Acc<T> product = alpha * sums[i];
      *to = Converted<C>(accumulate ? product + Converted<Acc<T>>(*to) : product);
    }
  }
}

template <class B, class C>
__global__ void AddBiasKernel(int64_t rows, int64_t columns, const B* bias, C* c) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  const Acc<C> add = Converted<Acc<C>>(bias[column]);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    C* to = c + row * columns + column;
    *to = Converted<C>(Converted<Acc<C>>(*to) + add);
  }
}

unsigned Blocks(int64_t n, int64_t per_block, int64_t limit) {
  return static_cast<unsigned>(std::min((n + per_block - 1) / per_block, limit));
}

constexpr int64_t kMaxGridY = 65535, kMaxGridX = (int64_t{1} << 31) - 1;

}  // namespace

void MultiplyPlainly(const KernelContext& context, const LtProduct& p) {
  const auto launch = [&](auto type, auto c_type) {
    using T = decltype(type);
    using C = decltype(c_type);
    const Operand<T> a{static_cast<const T*>(p.a), p.transpose_a ? 1 : p.lda, p.transpose_a ? p.lda : 1};
    const Operand<T> b{static_cast<const T*>(p.b), p.transpose_b ? 1 : p.ldb, p.transpose_b ? p.ldb : 1};
    const dim3 grid(Blocks(p.n, kTile, kMaxGridX), Blocks(p.m, kTile, kMaxGridY));
    MatMulKernel<<<grid, dim3(kTile, kTileRows), 0, Stream(context)>>>(p.m, p.n, p.k, a, b, static_cast<C*>(p.c), p.ldc,
                                                                       static_cast<Acc<T>>(p.alpha), p.accumulate);
    CheckLaunch("MatMul");
  };
  DispatchFloating(p.ab, "MatMul", [&](auto type) {
    using T = decltype(type);
    if (p.c_type == p.ab)
      launch(type, type);
    else if constexpr (sizeof(T) == 2)
      launch(type, float{});
  });
}

void AddBiasToRows(const KernelContext& context, Tensor bias, Tensor c) {
  const int64_t rows = detail::Rows(c), columns = detail::Columns(c);
  if (rows == 0 || columns == 0) return;
  constexpr int kThreads = 128;
  DispatchFloating(c.dtype, "MatMul", [&](auto c_type) {
    DispatchFloating(bias.dtype, "MatMul", [&](auto bias_type) {
      using C = decltype(c_type);
      using B = decltype(bias_type);
      const dim3 grid(Blocks(columns, kThreads, kMaxGridX), Blocks(rows, 1, kMaxGridY));
      AddBiasKernel<<<grid, kThreads, 0, Stream(context)>>>(rows, columns, Elements<B>(bias), Elements<C>(c));
      CheckLaunch("MatMul");
    });
  });
}

}  // namespace ds::cuda
