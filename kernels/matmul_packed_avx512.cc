// fp32 products of panels, 14 x 32: 28 accumulators, two vectors of b and one broadcast fill the 32 registers.
// 16-bit types become fp32 when they are packed. Compiled for AVX-512 (kernels/CMakeLists.txt).
#include "kernels/matmul_packed.h"

#if defined(__AVX512F__)
#include "kernels/matmul_finish_avx512.h"

namespace ds::detail {
namespace {

constexpr int64_t kRows = 14, kColumns = kPanelColumns;

/// Panel of a: [depth][extent], and 16 floats of room behind. Vectors of 16 are stored over each other in order.
void PackA(const PackSource& s, void* panel) {
  float* out = static_cast<float*>(panel);
  const int64_t bytes = static_cast<int64_t>(SizeOf(s.type));
  const char* data = static_cast<const char*>(s.data);
  if (!s.k_contiguous) {
    const __mmask16 mask = FirstLanes(s.extent);
    for (int64_t k = 0; k < s.depth; ++k)
      _mm512_storeu_ps(out + k * s.extent, LoadFloats(data + k * s.ld * bytes, s.type, 0, mask));
    return;
  }
  for (int64_t k = 0; k < s.depth; k += 16) {
    const int64_t n = s.depth - k < 16 ? s.depth - k : 16;
    const __mmask16 mask = FirstLanes(n);
    __m512 r[16];
    for (int i = 0; i < 16; ++i)
      r[i] = i < s.extent ? LoadFloats(data + i * s.ld * bytes, s.type, k, mask) : _mm512_setzero_ps();
    Transpose(r);
    for (int64_t i = 0; i < n; ++i) _mm512_storeu_ps(out + (k + i) * s.extent, r[i]);
  }
}

/// Panel of b: [depth][32], zeros beyond extent.
void PackB(const PackSource& s, void* panel) {
  float* out = static_cast<float*>(panel);
  const int64_t bytes = static_cast<int64_t>(SizeOf(s.type));
  const char* data = static_cast<const char*>(s.data);
  if (!s.k_contiguous) {
    const __mmask16 low = FirstLanes(s.extent), high = FirstLanes(s.extent - 16);
    for (int64_t k = 0; k < s.depth; ++k) {
      const char* row = data + k * s.ld * bytes;
      _mm512_store_ps(out + k * kColumns, LoadFloats(row, s.type, 0, low));
      _mm512_store_ps(out + k * kColumns + 16, LoadFloats(row, s.type, 16, high));
    }
    return;
  }
  for (int64_t k = 0; k < s.depth; k += 16) {
    const int64_t n = s.depth - k < 16 ? s.depth - k : 16;
    const __mmask16 mask = FirstLanes(n);
    for (int64_t half = 0; half < 2; ++half) {
      __m512 r[16];
      for (int i = 0; i < 16; ++i)
        r[i] = half * 16 + i < s.extent ? LoadFloats(data + (half * 16 + i) * s.ld * bytes, s.type, k, mask)
                                        : _mm512_setzero_ps();
      Transpose(r);
      for (int64_t i = 0; i < n; ++i) _mm512_store_ps(out + (k + i) * kColumns + half * 16, r[i]);
    }
  }
}

template <int R>
void Multiply(const float* a, const float* b, int64_t depth, const PanelOutput& o) {
  __m512 sum[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  int64_t k = 0;
  for (int row = 0; row < R; row += 4) {
    // Where the sums go is asked for a few rows at a time along the way: at once, they would keep a and b waiting.
    const int next = row + 4 < R ? row + 4 : R;
    for (int i = row; i < next; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(o.sums + i * o.ld_sums), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(o.sums + i * o.ld_sums + 16), _MM_HINT_T0);
    }
    for (const int64_t end = depth * next / R; k < end; ++k) {
      const __m512 b0 = _mm512_load_ps(b), b1 = _mm512_load_ps(b + 16);
      _mm_prefetch(reinterpret_cast<const char*>(b + 8 * kColumns), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b + 8 * kColumns + 16), _MM_HINT_T0);
#pragma GCC unroll 14
      for (int i = 0; i < R; ++i) {
        const __m512 left = _mm512_set1_ps(a[i]);
        sum[i][0] = _mm512_fmadd_ps(left, b0, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(left, b1, sum[i][1]);
      }
      a += R, b += kColumns;
    }
  }
  const __mmask16 low = FirstLanes(o.columns), high = FirstLanes(o.columns - 16);
  if (!o.first) {
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      const float* row = o.sums + i * o.ld_sums;
      sum[i][0] = _mm512_add_ps(sum[i][0], _mm512_maskz_loadu_ps(low, row));
      sum[i][1] = _mm512_add_ps(sum[i][1], _mm512_maskz_loadu_ps(high, row + 16));
    }
  }
  if (!o.finish) {
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      float* row = o.sums + i * o.ld_sums;
      _mm512_mask_storeu_ps(row, low, sum[i][0]);
      _mm512_mask_storeu_ps(row + 16, high, sum[i][1]);
    }
    return;
  }
  alignas(64) float done[R * kColumns];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    _mm512_store_ps(done + i * kColumns, sum[i][0]);
    _mm512_store_ps(done + i * kColumns + 16, sum[i][1]);
  }
  Finish(o, done);
}

void MultiplyPanels(const void* a, int64_t a_rows, const void* b, int64_t begin, int64_t depth, const PanelOutput& o) {
  using Function = void (*)(const float*, const float*, int64_t, const PanelOutput&);
  static constexpr Function kOfRows[] = {nullptr,      Multiply<1>,  Multiply<2>,  Multiply<3>,  Multiply<4>,
                                         Multiply<5>,  Multiply<6>,  Multiply<7>,  Multiply<8>,  Multiply<9>,
                                         Multiply<10>, Multiply<11>, Multiply<12>, Multiply<13>, Multiply<14>};
  kOfRows[a_rows](static_cast<const float*>(a) + begin * a_rows, static_cast<const float*>(b), depth, o);
}

template <int M>
void Rows(const BlockProduct& p, int64_t column, int64_t slab, int64_t depth) {
  const int64_t columns = p.n - column < 16 ? p.n - column : 16;
  const int64_t bytes = static_cast<int64_t>(SizeOf(p.ab));
  const char* b = static_cast<const char*>(p.b) + column * p.ldb * bytes;
  const __mmask16 lanes = FirstLanes(columns);
  __m512 total[M];
  for (int64_t begin = 0, end; begin < p.k; begin = end) {  // as many sums as packed panels have, in their order
    const int64_t slab_end = begin / slab * slab + slab < p.k ? begin / slab * slab + slab : p.k;
    end = begin + depth < slab_end ? begin + depth : slab_end;
    __m512 sum[M];
    for (int64_t i = 0; i < M; ++i) sum[i] = _mm512_setzero_ps();
    for (int64_t k = begin; k < end; k += 16) {
      const int64_t n = end - k < 16 ? end - k : 16;
      const __mmask16 mask = FirstLanes(n);
      __m512 r[16];
#pragma GCC unroll 16
      for (int64_t j = 0; j < 16; ++j)
        r[j] = j < columns ? LoadFloats(b + j * p.ldb * bytes, p.ab, k, mask) : _mm512_setzero_ps();
      Transpose(r);
      alignas(64) float left[M][16];
      for (int64_t i = 0; i < M; ++i)
        _mm512_store_ps(left[i], LoadFloats(static_cast<const char*>(p.a) + i * p.lda * bytes, p.ab, k, mask));
#pragma GCC unroll 4
      for (int64_t i = 0; i < M; ++i)
#pragma GCC unroll 16
        for (int64_t t = 0; t < 16; ++t)
          if (t < n) sum[i] = _mm512_fmadd_ps(_mm512_set1_ps(left[i][t]), r[t], sum[i]);
    }
    for (int64_t i = 0; i < M; ++i) total[i] = begin == 0 ? sum[i] : _mm512_add_ps(sum[i], total[i]);
  }
  for (int64_t i = 0; i < M; ++i) {
    __m512 v = _mm512_mul_ps(total[i], _mm512_set1_ps(p.alpha));
    if (p.bias) v = _mm512_add_ps(v, LoadFloats(p.bias, p.bias_type, column, lanes));
    char* c = static_cast<char*>(p.c) + (i * p.ldc + column) * static_cast<int64_t>(SizeOf(p.c_type));
    if (p.accumulate) v = _mm512_add_ps(v, LoadFloats(c, p.c_type, 0, lanes));
    StoreFloats(c, p.c_type, 0, lanes, v);
  }
}

void FewRows(const BlockProduct& p, int64_t column, int64_t slab, int64_t depth) {
  static_assert(kFewRows == 4);
  static constexpr decltype(&FewRows) kOfRows[] = {nullptr, Rows<1>, Rows<2>, Rows<3>, Rows<4>};
  kOfRows[p.m](p, column, slab, depth);
}

// The depth is all of a slab, so that sums go to memory once. A panel of a is larger than the first-level cache then,
// and the whole still faster than with less.
constexpr PackedKernel kKernel{"AVX-512", DType::f32, kRows,          kColumns, 1,       1024,
                               PackA,     PackB,      MultiplyPanels, nullptr,  nullptr, FewRows};

}  // namespace

const PackedKernel* const kCompiledAvx512Kernel = &kKernel;

}  // namespace ds::detail
#else
const ds::detail::PackedKernel* const ds::detail::kCompiledAvx512Kernel = nullptr;
#endif
