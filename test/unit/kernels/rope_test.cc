// Rotary position embedding against the plain formula, its inverse, and what it leaves alone.
#include "kernels/rope.h"

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  int64_t batch, tokens, total, size, heads;
};
const Case kCases[] = {{1, 1, 1, 2, 1}, {2, 7, 4, 16, 3}, {1, 37, 3, 34, 2}, {2, 19, 6, 128, 6}, {1, 3, 2, 8, 0}};
constexpr double kTheta = 10000;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

Array Turn(const Case& c, const Array& x, const Array& cos, const Array& sin, bool inverse) {
  return OnAnyThreads([&](const KernelContext& context) {
    Array y = x;
    Rope(context, y, c.heads, cos, sin, inverse);
    return std::vector<Array>{y};
  })[0];
}

TEST_CASE("rotary embedding agrees with the formula and turns back") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions)
      for (DType table : {DType::f32, DType::f64}) {
        CAPTURE(c.tokens, c.size, NameOf(p.dtype), NameOf(table));
        Array cos(table, {c.tokens + 5, c.size / 2}), sin(table, {c.tokens + 5, c.size / 2});
        RopeTable(kTheta, cos, sin);
        const Array x = Array::Random(p.dtype, {c.batch, c.tokens, c.total, c.size}, 1);
        const double tolerance = table == DType::f32 ? std::max(p.tolerance, 2e-6) : p.tolerance;
        for (bool inverse : {false, true}) {
          const Array y = Turn(c, x, cos, sin, inverse);
          CheckClose(
              "x", y,
              reference::Rope(Z(c.tokens), Z(c.total), Z(c.size), Z(c.heads), kTheta, inverse ? -1 : 1, x.values()),
              tolerance);
          CheckClose("x", Turn(c, y, cos, sin, !inverse), x.values(), 2 * tolerance);
          size_t changed = 0;
          for (size_t i = 0; i < x.size(); ++i) changed += i / Z(c.size) % Z(c.total) >= Z(c.heads) && y[i] != x[i];
          CHECK(changed == 0);
        }
      }
}

TEST_CASE("rotary tables keep their precision at far positions") {
  Array cos(DType::f32, {100000, 2}), sin(DType::f32, {100000, 2});
  RopeTable(500000, cos, sin);
  const size_t last = 99999;
  CHECK(cos[last * 2] == Approx(std::cos(99999.0)).margin(1e-7));
  CHECK(sin[last * 2 + 1] == Approx(std::sin(99999.0 / std::sqrt(500000.0))).margin(1e-7));
}

TEST_CASE("rotary embedding refuses tensors that do not fit") {
  Array x(DType::f32, {1, 4, 2, 6}), odd(DType::f32, {1, 4, 2, 5});
  Array cos(DType::f32, {4, 3}), sin(DType::f32, {4, 3}), short_table(DType::f32, {3, 3});
  CHECK_THROWS_AS(Rope({}, x, 3, cos, sin, false), std::invalid_argument);
  CHECK_THROWS_AS(Rope({}, odd, 1, cos, sin, false), std::invalid_argument);
  CHECK_THROWS_AS(Rope({}, x, 1, short_table, short_table, false), std::invalid_argument);
  CHECK_THROWS_AS(Rope({}, x, 1, cos, short_table, false), std::invalid_argument);
  CHECK_THROWS_AS(RopeTable(1e4, cos, short_table), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
