#include <cstring>
#include <vector>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include "kernels/convert.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"
#include "kernels/row_matmul.h"

namespace ds {
namespace {

using detail::Acc;

constexpr int64_t kColumnsPerTask = 24;
/// Products below this many multiplications are done before another thread has woken.
constexpr int64_t kWorthThreads = 200'000;

/// 32 bytes of numbers, one register where there is AVX.
template <class A>
struct LanesOf {
  typedef A type __attribute__((vector_size(32)));
};
template <class A>
using Lanes = typename LanesOf<A>::type;

/// a * b + c, fused: the same bits with and without the instruction.
inline Lanes<float> Fma(Lanes<float> a, Lanes<float> b, Lanes<float> c) {
#if defined(__FMA__)
  return reinterpret_cast<Lanes<float>>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  for (int l = 0; l < 8; ++l) c[l] = std::fma(a[l], b[l], c[l]);
  return c;
#endif
}
inline Lanes<double> Fma(Lanes<double> a, Lanes<double> b, Lanes<double> c) {
#if defined(__FMA__)
  return reinterpret_cast<Lanes<double>>(
      _mm256_fmadd_pd(reinterpret_cast<__m256d>(a), reinterpret_cast<__m256d>(b), reinterpret_cast<__m256d>(c)));
#else
  for (int l = 0; l < 4; ++l) c[l] = std::fma(a[l], b[l], c[l]);
  return c;
#endif
}

template <class A>
Lanes<A> LoadLanes(const A* from) {
  Lanes<A> lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

/// out[r][c] = x row r . w row c, of rows `k` long. Each has lanes of its own, so the blocking changes no bit.
template <int R, int C, class A>
void Dots(const A* x, const A* w, int64_t k, A (&out)[R][C]) {
  constexpr int64_t n = sizeof(Lanes<A>) / sizeof(A);
  Lanes<A> sums[R][C] = {};
  int64_t i = 0;
  for (; i + n <= k; i += n) {
    Lanes<A> left[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) left[r] = LoadLanes(x + r * k + i);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const Lanes<A> right = LoadLanes(w + c * k + i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r][c] = Fma(left[r], right, sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      for (int64_t rest = i; rest < k; ++rest)
        sums[r][c][rest - i] = std::fma(x[r * k + rest], w[c * k + rest], sums[r][c][rest - i]);
      A sum = 0;
      for (int64_t l = 0; l < n; ++l) sum += sums[r][c][l];
      out[r][c] = sum;
    }
}

/// Where a product goes: rounded once, after the bias.
template <class A, class Y>
struct Output {
  const A* bias;  // of the task's columns, or null
  Y* y;           // of the task's first column
  int64_t stride;

  template <int R, int C>
  void Put(int64_t row, int64_t column, const A (&sums)[R][C]) const {
    for (int r = 0; r < R; ++r)
      for (int c = 0; c < C; ++c) {
        const A sum = bias ? sums[r][c] + bias[column + c] : sums[r][c];
        detail::Convert(&sum, y + (row + r) * stride + column + c, 1);
      }
  }
};

/// R rows against `columns` rows of w, C at a time, then one by one.
template <int R, int C, class A, class Out>
void RowsTimesColumns(const A* x, const A* w, int64_t k, int64_t row, int64_t columns, const Out& out) {
  int64_t column = 0;
  for (; column + C <= columns; column += C) {
    A sums[R][C];
    Dots<R, C>(x + row * k, w + column * k, k, sums);
    out.Put(row, column, sums);
  }
  for (; column < columns; ++column) {
    A sums[R][1];
    Dots<R, 1>(x + row * k, w + column * k, k, sums);
    out.Put(row, column, sums);
  }
}

template <class T, class Y>
void Multiply(const KernelContext& context, int64_t m, int64_t n, int64_t k, const T* x, const T* w, const Acc<T>* bias,
              Y* y) {
  using A = Acc<T>;
  std::vector<A> x_buffer(std::is_same_v<T, A> ? 0 : static_cast<size_t>(m * k));
  const A* rows = detail::Load(x, x_buffer.data(), m * k);
  const KernelContext used{m * n * k < kWorthThreads ? 1 : context.threads, context.stream};
  detail::ParallelBlocks(used, n, kColumnsPerTask, [&](int64_t begin, int64_t end) {
    const int64_t columns = end - begin;
    std::vector<A> w_buffer(std::is_same_v<T, A> ? 0 : static_cast<size_t>(columns * k));
    const A* weights = detail::Load(w + begin * k, w_buffer.data(), columns * k);
    const Output<A, Y> out{bias ? bias + begin : nullptr, y + begin, n};
    int64_t row = 0;
    for (; row + 4 <= m; row += 4) RowsTimesColumns<4, 3>(rows, weights, k, row, columns, out);
    for (; row < m; ++row) RowsTimesColumns<1, 8>(rows, weights, k, row, columns, out);
  });
}

}  // namespace

void RowMatMul(const KernelContext& context, Tensor x, Tensor w, Tensor bias, Tensor y) {
  const char* kernel = "RowMatMul";
  detail::CheckFloating(kernel, "x", x);
  const DType wide = detail::AccumulateType(x.dtype);
  const int64_t m = detail::Rows(x), k = detail::Columns(x), n = detail::Columns(y);
  detail::Check(k > 0, kernel, detail::Describe("x", x) + ": rows without elements");
  detail::CheckMatrix(kernel, "w", w, x.dtype, n, k);
  detail::CheckMatrix(kernel, "y", y, y.dtype == wide ? wide : x.dtype, m, n);
  detail::RequireCpu(kernel, x, w, bias, y);
  std::vector<double> bias64;
  std::vector<float> bias32;
  if (bias) {
    detail::CheckVector(kernel, "bias", bias, bias.dtype == wide ? wide : x.dtype, n);
    bias64.resize(wide == DType::f64 ? static_cast<size_t>(n) : 0);
    bias32.resize(wide == DType::f64 ? 0 : static_cast<size_t>(n));
    detail::DispatchFloating(bias.dtype, kernel, [&](auto type) {
      using B = decltype(type);
      if (wide == DType::f64)
        detail::Convert(bias.as<B>(), bias64.data(), n);
      else
        detail::Convert(bias.as<B>(), bias32.data(), n);
    });
  }
  detail::DispatchFloating(x.dtype, kernel, [&](auto type) {
    using T = decltype(type);
    using A = Acc<T>;
    const A* b = nullptr;
    if constexpr (std::is_same_v<A, double>)
      b = bias ? bias64.data() : nullptr;
    else
      b = bias ? bias32.data() : nullptr;
    if (y.dtype == wide)
      Multiply<T, A>(context, m, n, k, x.as<T>(), w.as<T>(), b, y.as<A>());
    else
      Multiply<T, T>(context, m, n, k, x.as<T>(), w.as<T>(), b, y.as<T>());
  });
}

}  // namespace ds
