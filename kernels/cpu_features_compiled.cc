#include "kernels/cpu_features_compiled.h"

namespace ds::detail {
namespace {

constexpr uint32_t Bits() {
  uint32_t bits = 0;
#ifdef __SSE4_2__
  bits |= 1u << 0;
#endif
#ifdef __AVX__
  bits |= 1u << 1;
#endif
#ifdef __AVX2__
  bits |= 1u << 2;
#endif
#ifdef __FMA__
  bits |= 1u << 3;
#endif
#ifdef __F16C__
  bits |= 1u << 4;
#endif
#ifdef __BMI2__
  bits |= 1u << 5;
#endif
#ifdef __AVX512F__
  bits |= 1u << 6;
#endif
#ifdef __AVX512BW__
  bits |= 1u << 7;
#endif
#ifdef __AVX512DQ__
  bits |= 1u << 8;
#endif
#ifdef __AVX512VL__
  bits |= 1u << 9;
#endif
#ifdef __AVX512BF16__
  bits |= 1u << 10;
#endif
  return bits;
}

}  // namespace

const uint32_t kCompiledFeatures = Bits();

}  // namespace ds::detail
