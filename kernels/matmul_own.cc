#include "kernels/matmul_own.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kernels/convert.h"

namespace ds::detail {
namespace {

/// Converts the block [rows, columns] at (row, column) of x as stored, with row stride ld, to a dense one.
template <class T>
void CopyBlock(const T* x, int64_t ld, int64_t row, int64_t column, int64_t rows, int64_t columns, float* out) {
  for (int64_t i = 0; i < rows; ++i) Convert(x + (row + i) * ld + column, out + i * columns, columns);
}

/// The block [rows, columns] at (row, column) of op(x), x having row stride ld as stored, as a dense one.
void CopyOriented(const double* x, int64_t ld, bool transposed, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, double* out) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out[i * columns + j] = transposed ? x[(column + j) * ld + row + i] : x[(row + i) * ld + column + j];
}

/// c = alpha * product (+ bias) (+ c) for a dense fp32 (or fp64) block of products, rounded once.
template <class A, class C>
void Finish(const BlockProduct& p, const A* product, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  std::vector<A> bias(static_cast<size_t>(columns)), sum(static_cast<size_t>(columns));
  if (p.bias)
    DispatchFloating(p.bias_type, "MatMul", [&](auto type) {
      using B = decltype(type);
      Convert(static_cast<const B*>(p.bias) + column, bias.data(), columns);
    });
  C* c = static_cast<C*>(p.c);
  for (int64_t i = 0; i < rows; ++i) {
    C* out = c + (row + i) * p.ldc + column;
    const A* in = product + i * columns;
    if (p.accumulate)
      Convert(out, sum.data(), columns);
    else
      std::copy(bias.begin(), bias.end(), sum.begin());
    const A alpha = p.alpha;
    A* s = sum.data();
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j) s[j] += alpha * in[j];
    Convert(s, out, columns);
  }
}

constexpr int64_t kRows = 256, kColumns = 512, kDepth = 512;  ///< bounds of the converted pieces
constexpr int64_t kDoubleRows = 64, kDoubleColumns = 128, kDoubleDepth = 128;

template <class T>
void MultiplyConvertedTile(const BlockProduct& p, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  static thread_local std::vector<float> a, b, product;
  const int64_t depth = std::min(p.k, kDepth);
  a.resize(static_cast<size_t>(rows * depth));
  b.resize(static_cast<size_t>(depth * columns));
  product.assign(static_cast<size_t>(rows * columns), 0.0f);
  const T *stored_a = static_cast<const T*>(p.a), *stored_b = static_cast<const T*>(p.b);
  BlockProduct part;
  part.m = rows, part.n = columns, part.ldc = columns;
  part.transpose_a = p.transpose_a, part.transpose_b = p.transpose_b;
  part.a = a.data(), part.b = b.data(), part.c = product.data();
  for (int64_t k = 0; k < p.k; k += depth) {
    part.k = std::min(depth, p.k - k);
    part.accumulate = k > 0;
    part.lda = p.transpose_a ? rows : part.k;
    part.ldb = p.transpose_b ? part.k : columns;
    if (p.transpose_a)
      CopyBlock(stored_a, p.lda, k, row, part.k, rows, a.data());
    else
      CopyBlock(stored_a, p.lda, row, k, rows, part.k, a.data());
    if (p.transpose_b)
      CopyBlock(stored_b, p.ldb, column, k, columns, part.k, b.data());
    else
      CopyBlock(stored_b, p.ldb, k, column, part.k, columns, b.data());
    if (!MultiplyWithOneDnn(part)) throw std::invalid_argument("MatMul: oneDNN has no fp32 matrix product");
  }
  if (p.c_type == DType::f32)
    Finish<float, float>(p, product.data(), row, column, rows, columns);
  else
    Finish<float, T>(p, product.data(), row, column, rows, columns);
}

void MultiplyDoubleTile(const BlockProduct& p, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  std::vector<double> a(static_cast<size_t>(rows * kDoubleDepth)), b(static_cast<size_t>(kDoubleDepth * columns));
  std::vector<double> product(static_cast<size_t>(rows * columns), 0.0);
  for (int64_t k = 0; k < p.k; k += kDoubleDepth) {
    const int64_t depth = std::min(kDoubleDepth, p.k - k);
    CopyOriented(static_cast<const double*>(p.a), p.lda, p.transpose_a, row, k, rows, depth, a.data());
    CopyOriented(static_cast<const double*>(p.b), p.ldb, p.transpose_b, k, column, depth, columns, b.data());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t l = 0; l < depth; ++l) {
        const double left = a[static_cast<size_t>(i * depth + l)];
        const double* right = b.data() + l * columns;
        double* out = product.data() + i * columns;
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j) out[j] += left * right[j];
      }
  }
  Finish<double, double>(p, product.data(), row, column, rows, columns);
}

template <class Tile>
void ForEachTile(const BlockProduct& p, int64_t rows, int64_t columns, const Tile& tile) {
  for (int64_t i = 0; i < p.m; i += rows)
    for (int64_t j = 0; j < p.n; j += columns) tile(i, j, std::min(rows, p.m - i), std::min(columns, p.n - j));
}

}  // namespace

void MultiplyDouble(const BlockProduct& p) {
  ForEachTile(p, kDoubleRows, kDoubleColumns,
              [&](int64_t i, int64_t j, int64_t rows, int64_t columns) { MultiplyDoubleTile(p, i, j, rows, columns); });
}

void MultiplyConverted(const BlockProduct& p) {
  ForEachTile(p, kRows, kColumns, [&](int64_t i, int64_t j, int64_t rows, int64_t columns) {
    switch (p.ab) {
      case DType::f16:
        return MultiplyConvertedTile<f16>(p, i, j, rows, columns);
      case DType::bf16:
        return MultiplyConvertedTile<bf16>(p, i, j, rows, columns);
      default:
        return MultiplyConvertedTile<float>(p, i, j, rows, columns);
    }
  });
}

}  // namespace ds::detail
