// Philox against its published vectors; streams, normal numbers and dropout masks.
#include "kernels/random.h"

#include <algorithm>
#include <numeric>

#include "kernels/dropout.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

TEST_CASE("Philox 4x32-10 gives the published known answers") {
  // Random123 (Salmon et al.), kat_vectors, philox4x32 with 10 rounds.
  CHECK(Philox({0, 0, 0, 0}, {0, 0}) == std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  const uint32_t f = 0xffffffffu;
  CHECK(Philox({f, f, f, f}, {f, f}) == std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  CHECK(Philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}) ==
        std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

const RandomStream kStream{0x0123456789abcdefu, 0xfedcba9876543210u};

/// Number i of a stream, from the documentation alone.
uint32_t Number(RandomStream s, uint64_t i) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  return Philox({low(i / 4), high(i / 4), low(s.site), high(s.site)}, {low(s.seed), high(s.seed)})[i % 4];
}

TEST_CASE("a stream can be entered anywhere") {
  for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, (uint64_t{1} << 34) - 5, ~uint64_t{0} - 5000})
    for (size_t n : {size_t{0}, size_t{1}, size_t{3}, size_t{256}, size_t{1000}}) {
      CAPTURE(first, n);
      std::vector<uint32_t> got(n + 1, 0xdeadbeefu);
      RandomBits(kStream, first, std::span<uint32_t>(got.data(), n));
      for (size_t i = 0; i < n; ++i) REQUIRE(got[i] == Number(kStream, first + i));
      CHECK(got[n] == 0xdeadbeefu);
    }
}

TEST_CASE("normal numbers are Box-Muller of the stream, wherever it is entered and on any threads") {
  const int64_t n = 20011;
  const auto got = OnAnyThreads([&](const KernelContext& context) {
    Array x(DType::f32, {n});
    FillNormal(context, kStream, 5, 0.5f, 2.0f, x);
    return std::vector<Array>{x};
  })[0];
  Values want;
  for (uint64_t i = 5; i < 5 + static_cast<uint64_t>(n); ++i) {
    const double u = (Number(kStream, i / 2 * 2) + 0.5) / 4294967296.0;
    const double angle = 2 * std::acos(-1.0) * Number(kStream, i / 2 * 2 + 1) / 4294967296.0;
    want.push_back(0.5 + 2 * std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle)));
  }
  CheckClose("normals", got, want, 3e-6);
  Array part(DType::f32, {777});
  FillNormal({}, kStream, 5 + 1001, 0.5f, 2.0f, part);
  for (size_t i = 0; i < part.size(); ++i) REQUIRE(part[i] == got[1001 + i]);
}

TEST_CASE("normal numbers are normal") {
  const int64_t n = 1 << 20;
  Array x(DType::f32, {n});
  FillNormal({2}, {1234, 7}, 0, 0, 1, x);
  Values v = x.values();
  const double count = static_cast<double>(n);
  double moments[5] = {}, neighbours = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(v[i], k) / count;
    if (i) neighbours += v[i] * v[i - 1] / count;
  }
  // Five standard deviations of each statistic.
  CHECK(std::fabs(moments[1]) < 5 / std::sqrt(count));
  CHECK(std::fabs(moments[2] - 1) < 5 * std::sqrt(2 / count));
  CHECK(std::fabs(moments[3]) < 5 * std::sqrt(15 / count));
  CHECK(std::fabs(moments[4] - 3) < 5 * std::sqrt(96 / count));
  CHECK(std::fabs(neighbours) < 5 / std::sqrt(count));
  // Kolmogorov-Smirnov: the largest distance of the distribution functions; 2.0 / sqrt(n) has probability 7e-4.
  std::sort(v.begin(), v.end());
  double distance = 0;
  for (size_t i = 0; i < v.size(); ++i)
    distance = std::max(distance, std::fabs(0.5 * std::erfc(-v[i] / std::sqrt(2.0)) - static_cast<double>(i) / count));
  CHECK(distance < 2 / std::sqrt(count));
}

TEST_CASE("seeds and sites give unrelated streams") {
  Array a(DType::f32, {10000}), b(DType::f32, {10000}), c(DType::f32, {10000});
  FillNormal({}, {1, 1}, 0, 0, 1, a);
  FillNormal({}, {2, 1}, 0, 0, 1, b);
  FillNormal({}, {1, 2}, 0, 0, 1, c);
  CHECK(std::fabs(Dot(a.values(), b.values())) < 5 * 100);
  CHECK(std::fabs(Dot(a.values(), c.values())) < 5 * 100);
}

TEST_CASE("dropout keeps, scales and adds by the documented rule") {
  for (const Precision& precision : kPrecisions)
    for (float p : {0.0f, 0.1f, 0.5f, 0.9f})
      for (int64_t n : {1, 1025, 5003}) {
        CAPTURE(NameOf(precision.dtype), p, n);
        const Array x = Array::Random(precision.dtype, {n}, 1), residual = Array::Random(precision.dtype, {n}, 2);
        const auto got = OnAnyThreads([&](const KernelContext& context) {
          Array with(x.dtype(), {n}), without(x.dtype(), {n}), in_place = x, onto = residual;
          Dropout(context, kStream, 9, p, x, residual, with);
          Dropout(context, kStream, 9, p, x, {}, without);
          Dropout(context, kStream, 9, p, in_place, {}, in_place);
          Dropout(context, kStream, 9, p, x, onto, onto);
          return std::vector<Array>{with, without, in_place, onto};
        });
        Values with, without;
        for (size_t i = 0; i < x.size(); ++i) {
          const bool keep = Number(kStream, 9 + i) >= static_cast<double>(p) * 4294967296.0;
          without.push_back(keep ? x[i] / (1 - static_cast<double>(p)) : 0);
          with.push_back(without.back() + residual[i]);
        }
        CheckClose("y", got[0], with, precision.tolerance);
        CheckClose("y", got[1], without, precision.tolerance);
        size_t kept_though_dropped = 0;
        for (size_t i = 0; i < x.size(); ++i) kept_though_dropped += without[i] == 0 && got[1][i] != 0;
        CHECK(kept_though_dropped == 0);
        CHECK(got[2] == got[1]);
        CHECK(got[3] == got[0]);
      }
}

TEST_CASE("dropout drops at its rate") {
  const int64_t n = 1 << 20;
  const Array ones = Array::Of(DType::f32, {n}, Values(static_cast<size_t>(n), 1));
  for (float p : {0.01f, 0.1f, 0.5f, 0.75f}) {
    Array y(DType::f32, {n});
    Dropout({2}, {99, 3}, 0, p, ones, {}, y);
    const Values v = y.values();
    const double dropped = static_cast<double>(std::count(v.begin(), v.end(), 0.0));
    CHECK(std::fabs(dropped / static_cast<double>(n) - p) < 5 * std::sqrt(p * (1 - p) / static_cast<double>(n)));
    CHECK(std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(n) == Approx(1).margin(0.01));
  }
}

TEST_CASE("a dropped infinity is zero") {
  const Array x = Array::Of(DType::f32, {1000}, Values(1000, INFINITY));
  Array y(DType::f32, {1000});
  Dropout({}, kStream, 0, 0.5f, x, {}, y);
  size_t zeros = 0;
  for (double v : y.values()) {
    REQUIRE((v == 0 || std::isinf(v)));
    zeros += v == 0;
  }
  CHECK((zeros > 400 && zeros < 600));
}

TEST_CASE("dropout refuses probabilities and tensors that do not fit") {
  Array x(DType::f32, {4}), y(DType::f32, {5});
  for (float p : {-0.1f, 1.0f, std::nanf("")}) CHECK_THROWS_AS(Dropout({}, {}, 0, p, x, {}, x), std::invalid_argument);
  CHECK_THROWS_AS(Dropout({}, {}, 0, 0.1f, x, {}, y), std::invalid_argument);
  CHECK_THROWS_AS(FillNormal({}, {}, 0, 0, 1, Array(DType::bf16, {4})), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
