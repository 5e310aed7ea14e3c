// Optimizer updates with AVX2. Compiled for it whatever the other kernels are compiled for (CMakeLists.txt).
#include "kernels/optimizer_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

namespace ds::detail {
namespace {

constexpr const char* kVectorName = "avx2";
constexpr int64_t kLanes = 8;

struct Vector {
  __m256 x;
  Vector(__m256 v) : x(v) {}
  Vector(float v) : x(_mm256_set1_ps(v)) {}
};

inline Vector operator*(Vector a, Vector b) { return _mm256_mul_ps(a.x, b.x); }
inline Vector operator/(Vector a, Vector b) { return _mm256_div_ps(a.x, b.x); }
inline Vector Times(Vector a, Vector b) { return _mm256_mul_ps(a.x, b.x); }
inline Vector Plus(Vector a, Vector b) { return _mm256_add_ps(a.x, b.x); }
inline Vector Fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a.x, b.x, c.x); }
inline Vector Sqrt(Vector v) { return _mm256_sqrt_ps(v.x); }
inline Vector Sign(Vector v) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 below = _mm256_blendv_ps(v.x, _mm256_set1_ps(-1.0f), _mm256_cmp_ps(v.x, zero, _CMP_LT_OQ));
  return _mm256_blendv_ps(below, _mm256_set1_ps(1.0f), _mm256_cmp_ps(v.x, zero, _CMP_GT_OQ));
}

/// fp32 to bf16 as ds::bf16 rounds: to nearest even, NaN stays NaN. In the lower halves of the lanes, the upper are 0.
inline __m256i RoundToBf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

/// 16 numbers of 16 bits.
inline __m256i RoundTo(DType type, Vector a, Vector b) {
  if (type == DType::f16)
    return _mm256_set_m128i(_mm256_cvtps_ph(b.x, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a.x, _MM_FROUND_TO_NEAREST_INT));
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(RoundToBf16(a.x), RoundToBf16(b.x)), 0xd8);
}

inline Vector Load(const void* from, DType type, int64_t i) {
  if (type == DType::f32) return _mm256_loadu_ps(static_cast<const float*>(from) + i);
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint16_t*>(from) + i));
  if (type == DType::f16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

inline void Store(void* to, DType type, int64_t i, Vector v) {
  if (type == DType::f32) return _mm256_storeu_ps(static_cast<float*>(to) + i, v.x);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(static_cast<uint16_t*>(to) + i),
                   _mm256_castsi256_si128(RoundTo(type, v, v)));
}

inline void StorePair(void* to, DType type, int64_t i, Vector a, Vector b, bool stream) {
  if (type == DType::f32) {
    Store(to, type, i, a);
    return Store(to, type, i + kLanes, b);
  }
  const __m256i pair = RoundTo(type, a, b);
  __m256i* const at = reinterpret_cast<__m256i*>(static_cast<uint16_t*>(to) + i);
  stream ? _mm256_stream_si256(at, pair) : _mm256_storeu_si256(at, pair);
}

}  // namespace
}  // namespace ds::detail

#include "kernels/optimizer_vectors.h"

const ds::detail::OptimizerKernels* const ds::detail::kCompiledAvx2OptimizerKernels = &ds::detail::kVectorKernels;

#else

const ds::detail::OptimizerKernels* const ds::detail::kCompiledAvx2OptimizerKernels = nullptr;

#endif
