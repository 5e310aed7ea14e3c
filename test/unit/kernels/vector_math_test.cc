// The branch-free elementary functions against the C library in fp64, and conversions of 16-bit types, all values.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/vector_math.h"

#include "kernels/cpu_features.h"
#include "kernels/lanes.h"
#include "kernels/widest.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

/// The largest error of f in units in the last place over a grid of all magnitudes of [low, high], both signs.
template <class F, class Exact>
double WorstUlp(float low, float high, const F& f, const Exact& exact) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 4099)
    for (float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      if (x < low || x > high) continue;
      const double want = exact(static_cast<double>(x));
      const double magnitude = std::max(std::fabs(want), 0x1p-126);
      const double ulp = std::ldexp(1.0, std::ilogb(magnitude) - 23);
      const double error = std::fabs(f(x) - want) / ulp;
      worst = std::isnan(error) ? HUGE_VAL : std::max(worst, error);
    }
  return worst;
}

TEST_CASE("elementary functions keep their stated errors") {
  CHECK(WorstUlp(
            -110, 88.72f, [](float x) { return detail::Exp(x); }, [](double x) { return std::exp(x); }) <= 1);
  CHECK(WorstUlp(
            -1e30f, 1e30f, [](float x) { return detail::Erf(x); }, [](double x) { return std::erf(x); }) <= 2);
  CHECK(WorstUlp(
            0x1p-126f, 3e38f, [](float x) { return detail::LogOfPositive(x); }, [](double x) { return std::log(x); }) <=
        2);
  double worst = 0;
  for (uint64_t turn = 0; turn < uint64_t{1} << 32; turn += 65521) {
    const double angle = 2 * std::acos(-1.0) * static_cast<double>(turn) / 4294967296.0;
    const detail::CosSin got = detail::CosSinOfTurn(static_cast<uint32_t>(turn));
    worst = std::max({worst, std::fabs(got.cos - std::cos(angle)), std::fabs(got.sin - std::sin(angle))});
  }
  CHECK(worst <= 0x1p-23);
}

TEST_CASE("elementary functions at the ends") {
  const float inf = INFINITY, nan = std::nanf("");
  CHECK((detail::Exp(inf) == inf && detail::Exp(-inf) == 0 && detail::Exp(89.0f) == inf && detail::Exp(0.0f) == 1));
  CHECK((detail::Erf(inf) == 1 && detail::Erf(-inf) == -1));
  CHECK((std::isnan(detail::Exp(nan)) && std::isnan(detail::Erf(nan))));
}

TEST_CASE("a loop has the same bits in the widest vectors") {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 40961)
    for (float v : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) x.push_back(v);
  const auto n = static_cast<int64_t>(x.size());
  const auto compute = [&](std::vector<float>& y) {
    y.resize(x.size() + 1);
    for (int64_t i = 0; i < n; ++i) y[i] = detail::Erf(x[i]) + x[i] * (1.0f / (1.0f + detail::Exp(-x[i])));
    y[n] = detail::LaneSum<float>(n, [&](int64_t i) { return detail::Exp(-x[i] * x[i]); });
  };
  std::vector<float> plain, widest;
  compute(plain);
  detail::Widest([&] { compute(widest); });
  CHECK(std::memcmp(plain.data(), widest.data(), plain.size() * sizeof(float)) == 0);
}

TEST_CASE("every 16-bit value survives fp32, and fp32 rounds to the nearest even bf16") {
  size_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto fb = static_cast<float>(std::bit_cast<bf16>(static_cast<uint16_t>(bits)));
    const auto fh = static_cast<float>(std::bit_cast<f16>(static_cast<uint16_t>(bits)));
    wrong += std::isnan(fb) ? !std::isnan(static_cast<float>(bf16(fb))) : bf16(fb).bits != bits;
    wrong += std::isnan(fh) ? !std::isnan(static_cast<float>(f16(fh))) : std::bit_cast<uint16_t>(f16(fh)) != bits;
    if ((bits & 0x7fffu) >= 0x7f80u) continue;
    // The middle between a bf16 and the next goes to the even one; a hair beyond it goes up.
    const uint32_t middle = bits << 16 | 0x8000u;
    wrong += bf16(std::bit_cast<float>(middle)).bits != bits + (bits & 1);
    wrong += bf16(std::bit_cast<float>(middle + 1)).bits != bits + 1;
    wrong += bf16(std::bit_cast<float>(middle - 1)).bits != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("this CPU has what the kernels were compiled for, or these tests would not run") {
  CHECK(MissingCpuFeature() == nullptr);
}

}  // namespace
}  // namespace ds::test
