#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/dispatch.h"
#include "kernels/matmul_onednn.h"
#include "kernels/matmul_own.h"
#include "kernels/matmul_packed.h"
#include "kernels/parallel.h"

namespace ds {
namespace {

using detail::BlockProduct;

// Few big tiles: one thread reaches most of its speed on one (measured: ~200 GFLOP/s in fp32, ~1,500 in bf16 with AMX),
// and a mid-sized layer still has enough of them for a handful of threads. Never cut along k.
constexpr int64_t kTileRows = 256, kTileColumns = 512;

/// Length of equal pieces, at most `target` long and a multiple of 32, that cover `total`.
int64_t PieceLength(int64_t total, int64_t target) {
  const int64_t pieces = (total + target - 1) / target;
  return ((total + pieces - 1) / pieces + 31) / 32 * 32;
}

const void* Advance(const void* p, DType type, int64_t elements) {
  return static_cast<const char*>(p) + elements * static_cast<int64_t>(SizeOf(type));
}

void Multiply(const BlockProduct& p) {
  if (p.m == 0 || p.n == 0) return;
  if (const detail::PackedKernel* packed = detail::PackedKernelFor(p.ab))
    detail::MultiplyPacked(*packed, {}, p);
  else if (p.ab == DType::f64)
    detail::MultiplyDouble(p);
  else if (p.ab == DType::f16 || !detail::MultiplyWithOneDnn(p))
    detail::MultiplyConverted(p);
}

/// The tile of p at (row, column).
BlockProduct Tile(const BlockProduct& p, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  BlockProduct tile = p;
  tile.m = rows, tile.n = columns;
  tile.a = Advance(p.a, p.ab, p.transpose_a ? row : row * p.lda);
  tile.b = Advance(p.b, p.ab, p.transpose_b ? column * p.ldb : column);
  tile.c = const_cast<void*>(Advance(p.c, p.c_type, row * p.ldc + column));
  if (p.bias) tile.bias = Advance(p.bias, p.bias_type, column);
  return tile;
}

void CheckTypes(const char* kernel, DType ab, DType c) {
  detail::Check(detail::IsFloating(ab), kernel,
                std::string("a and b are ") + NameOf(ab) + ", expected f64, f32, bf16 or f16");
  detail::Check(c == ab || (c == DType::f32 && ab != DType::f64), kernel,
                std::string("c is ") + NameOf(c) + " for a and b of " + NameOf(ab));
}

}  // namespace

void MatMul(const KernelContext& context, Tensor a, Tensor b, Tensor c, const MatMulOptions& options) {
  const char* kernel = "MatMul";
  detail::CheckFloating(kernel, "a", a);
  detail::CheckFloating(kernel, "b", b);
  detail::CheckFloating(kernel, "c", c);
  CheckTypes(kernel, a.dtype, c.dtype);
  BlockProduct p;
  p.ab = a.dtype, p.c_type = c.dtype;
  p.lda = detail::Columns(a), p.ldb = detail::Columns(b), p.ldc = detail::Columns(c);
  p.transpose_a = options.transpose_a, p.transpose_b = options.transpose_b, p.accumulate = options.accumulate;
  p.alpha = options.alpha;
  p.m = options.transpose_a ? detail::Columns(a) : detail::Rows(a);
  p.k = options.transpose_a ? detail::Rows(a) : detail::Columns(a);
  p.n = options.transpose_b ? detail::Rows(b) : detail::Columns(b);
  const int64_t k_of_b = options.transpose_b ? detail::Columns(b) : detail::Rows(b);
  detail::Check(b.dtype == a.dtype && k_of_b == p.k && p.k > 0 && detail::Rows(c) == p.m && detail::Columns(c) == p.n,
                kernel,
                detail::Describe("a", a) + (p.transpose_a ? " (transposed), " : ", ") + detail::Describe("b", b) +
                    (p.transpose_b ? " (transposed), " : ", ") + detail::Describe("c", c) + ": they do not fit");
  p.a = a.data, p.b = b.data, p.c = c.data;
  if (options.bias) {
    const DType type = options.bias.dtype;
    detail::CheckVector(kernel, "bias", options.bias, type == a.dtype ? a.dtype : detail::AccumulateType(a.dtype), p.n);
    detail::Check(!options.accumulate, kernel, "a bias together with accumulate");
    p.bias = options.bias.data, p.bias_type = type;
  }

  if (detail::RanOnCuda(kernel, cuda::MatMul, context, a, b, c, options)) return;
  if (p.m == 0 || p.n == 0) return;
  if (const detail::PackedKernel* packed = detail::PackedKernelFor(p.ab))
    return detail::MultiplyPacked(*packed, context, p);
  const int64_t rows = PieceLength(p.m, kTileRows), columns = PieceLength(p.n, kTileColumns);
  const int64_t across = (p.n + columns - 1) / columns, down = (p.m + rows - 1) / rows;
  detail::ParallelFor(context, across * down, [&](int64_t i) {
    const int64_t row = i / across * rows, column = i % across * columns;
    Multiply(Tile(p, row, column, std::min(rows, p.m - row), std::min(columns, p.n - column)));
  });
}

void MatMulBlock(DType ab, DType c_type, int64_t m, int64_t n, int64_t k, const void* a, int64_t lda, bool transpose_a,
                 const void* b, int64_t ldb, bool transpose_b, void* c, int64_t ldc, bool accumulate) {
  CheckTypes("MatMulBlock", ab, c_type);
  BlockProduct p;
  p.ab = ab, p.c_type = c_type, p.m = m, p.n = n, p.k = k;
  p.a = a, p.lda = lda, p.transpose_a = transpose_a;
  p.b = b, p.ldb = ldb, p.transpose_b = transpose_b;
  p.c = c, p.ldc = ldc, p.accumulate = accumulate;
  Multiply(p);
}

}  // namespace ds
