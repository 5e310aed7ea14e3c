// RowMatMul: against fp64 in every dtype; a row has the same bits whatever rows are beside it.
#include "kernels/row_matmul.h"

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  int64_t m, n, k;
};
// Rows and columns around the blocks of 4 and 1, 3 and 8 and 24; depths with and without a rest; one that uses threads.
const Case kCases[] = {{1, 1, 1}, {1, 40, 16}, {3, 27, 7}, {9, 25, 33}, {4, 3, 64}, {6, 300, 130}};

TEST_CASE("row products agree with the formula in every dtype, with and without a bias") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions)
      for (const bool with_bias : {false, true})
        for (const bool wide : {false, true}) {
          CAPTURE(c.m, c.n, c.k, NameOf(p.dtype), with_bias, wide);
          const Array x = Array::Random(p.dtype, {c.m, c.k}, 1), w = Array::Random(p.dtype, {c.n, c.k}, 2);
          const DType wide_type = StatisticsType(p.dtype);
          const Array bias = Array::Random(wide ? wide_type : p.dtype, {c.n}, 3);
          const size_t m = static_cast<size_t>(c.m), n = static_cast<size_t>(c.n), k = static_cast<size_t>(c.k);
          Values want = reference::MatMul(m, n, k, x.values(), false, w.values(), true);
          if (with_bias)
            for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % n];
          const auto got = OnAnyThreads([&](const KernelContext& context) {
            Array y(wide ? wide_type : p.dtype, {c.m, c.n});
            RowMatMul(context, x, w, with_bias ? bias.tensor() : Tensor(), y);
            return std::vector<Array>{y};
          });
          CheckClose("y", got[0], want, wide ? 2 * (p.dtype == DType::f64 ? 1e-13 : 2e-6) : 2 * p.tolerance);
        }
}

TEST_CASE("a row has the same bits alone and among others") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.m, c.n, c.k, NameOf(p.dtype));
      const Array x = Array::Random(p.dtype, {c.m, c.k}, 4), w = Array::Random(p.dtype, {c.n, c.k}, 5);
      Array together(p.dtype, {c.m, c.n}), alone(p.dtype, {c.m, c.n});
      RowMatMul({2}, x, w, {}, together);
      for (int64_t row = 0; row < c.m; ++row)
        RowMatMul({1}, x.tensor().Flat(row * c.k, c.k).View({1, c.k}), w, {},
                  alone.tensor().Flat(row * c.n, c.n).View({1, c.n}));
      CHECK(alone == together);
      if (c.n < 8) continue;
      Array first(p.dtype, {c.m, 8});  // nor do columns
      RowMatMul({1}, x, w.tensor().Flat(0, 8 * c.k).View({8, c.k}), {}, first);
      for (int64_t row = 0; row < c.m; ++row)
        for (int64_t column = 0; column < 8; ++column)
          REQUIRE(first[static_cast<size_t>(row * 8 + column)] == together[static_cast<size_t>(row * c.n + column)]);
    }
}

TEST_CASE("row products refuse tensors that do not fit") {
  Array x(DType::f32, {2, 8}), w(DType::f32, {3, 8}), y(DType::f32, {2, 3}), bias(DType::f32, {3});
  CHECK_THROWS_AS(RowMatMul({}, x, Array(DType::f32, {3, 7}), {}, y), std::invalid_argument);
  CHECK_THROWS_AS(RowMatMul({}, x, Array(DType::bf16, {3, 8}), {}, y), std::invalid_argument);
  CHECK_THROWS_AS(RowMatMul({}, x, w, {}, Array(DType::f32, {3, 3})), std::invalid_argument);
  CHECK_THROWS_AS(RowMatMul({}, x, w, Array(DType::f32, {2}), y), std::invalid_argument);
  CHECK_THROWS_AS(RowMatMul({}, x, w, Array(DType::f16, {3}), y), std::invalid_argument);
  CHECK_THROWS_AS(RowMatMul({}, x, w, bias, Array(DType::bf16, {2, 3})), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
