// Compiled without -march (kernels/CMakeLists.txt): it runs on CPUs that the kernels do not run on.
#include "kernels/cpu_features.h"

#include "kernels/cpu_features_compiled.h"

namespace ds {

const char* MissingCpuFeature() {
#if defined(__x86_64__)
  const struct {
    const char* name;
    bool present;
  } features[] = {
      {"SSE4.2", __builtin_cpu_supports("sse4.2") != 0},
      {"AVX", __builtin_cpu_supports("avx") != 0},
      {"AVX2", __builtin_cpu_supports("avx2") != 0},
      {"FMA", __builtin_cpu_supports("fma") != 0},
      {"F16C", __builtin_cpu_supports("f16c") != 0},
      {"BMI2", __builtin_cpu_supports("bmi2") != 0},
      {"AVX512F", __builtin_cpu_supports("avx512f") != 0},
      {"AVX512BW", __builtin_cpu_supports("avx512bw") != 0},
      {"AVX512DQ", __builtin_cpu_supports("avx512dq") != 0},
      {"AVX512VL", __builtin_cpu_supports("avx512vl") != 0},
      {"AVX512_BF16", __builtin_cpu_supports("avx512bf16") != 0},
  };
  for (unsigned i = 0; i < sizeof(features) / sizeof(features[0]); ++i)
    if ((detail::kCompiledFeatures >> i & 1u) && !features[i].present) return features[i].name;
#endif
  return nullptr;
}

bool HasAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

bool HasAvx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

}  // namespace ds
