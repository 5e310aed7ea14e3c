// Optimizer updates with AVX-512. Compiled for it whatever the other kernels are compiled for (CMakeLists.txt).
#include "kernels/optimizer_kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "kernels/avx512.h"

namespace ds::detail {
namespace {

constexpr const char* kVectorName = "avx512";
constexpr int64_t kLanes = 16;

struct Vector {
  __m512 x;
  Vector(__m512 v) : x(v) {}
  Vector(float v) : x(_mm512_set1_ps(v)) {}
};

inline Vector operator*(Vector a, Vector b) { return _mm512_mul_ps(a.x, b.x); }
inline Vector operator/(Vector a, Vector b) { return _mm512_div_ps(a.x, b.x); }
inline Vector Times(Vector a, Vector b) { return _mm512_mul_ps(a.x, b.x); }
inline Vector Plus(Vector a, Vector b) { return _mm512_add_ps(a.x, b.x); }
inline Vector Fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a.x, b.x, c.x); }
inline Vector Sqrt(Vector v) { return _mm512_sqrt_ps(v.x); }
inline Vector Sign(Vector v) {
  const __m512 zero = _mm512_setzero_ps();
  const __m512 below = _mm512_mask_mov_ps(v.x, _mm512_cmp_ps_mask(v.x, zero, _CMP_LT_OQ), _mm512_set1_ps(-1.0f));
  return _mm512_mask_mov_ps(below, _mm512_cmp_ps_mask(v.x, zero, _CMP_GT_OQ), _mm512_set1_ps(1.0f));
}

inline Vector Load(const void* from, DType type, int64_t i) { return LoadFloats(from, type, i, 0xffff); }
inline void Store(void* to, DType type, int64_t i, Vector v) { StoreFloats(to, type, i, 0xffff, v.x); }

inline __m256i RoundTo(DType type, Vector v) {
  return type == DType::f16 ? _mm512_cvtps_ph(v.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) : RoundToBf16(v.x);
}

inline void StorePair(void* to, DType type, int64_t i, Vector a, Vector b, bool stream) {
  if (type == DType::f32) {
    Store(to, type, i, a);
    return Store(to, type, i + kLanes, b);
  }
  const __m512i pair = _mm512_inserti64x4(_mm512_castsi256_si512(RoundTo(type, a)), RoundTo(type, b), 1);
  void* const at = static_cast<uint16_t*>(to) + i;
  stream ? _mm512_stream_si512(static_cast<__m512i*>(at), pair) : _mm512_storeu_si512(at, pair);
}

}  // namespace
}  // namespace ds::detail

#include "kernels/optimizer_vectors.h"

const ds::detail::OptimizerKernels* const ds::detail::kCompiledAvx512OptimizerKernels = &ds::detail::kVectorKernels;

#else

const ds::detail::OptimizerKernels* const ds::detail::kCompiledAvx512OptimizerKernels = nullptr;

#endif
