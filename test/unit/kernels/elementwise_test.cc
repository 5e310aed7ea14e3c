// Fill, cast, add, scale, bias gradients and the two reductions.
#include "kernels/elementwise.h"

#include <limits>

#include "kernels/reduce.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

const int64_t kCounts[] = {1, 15, 17, 2049, 8192, 20011, 70001};

TEST_CASE("fill writes every element and none behind") {
  for (const Precision& p : kPrecisions)
    for (int64_t n : kCounts) {
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array x(p.dtype, {n});
        Fill(context, x, -1.5);
        return std::vector<Array>{x};
      });
      CHECK(got[0] == Array::Of(p.dtype, {n}, Values(static_cast<size_t>(n), -1.5)));
    }
}

TEST_CASE("cast rounds to nearest even between all floating dtypes") {
  for (const Precision& from : kPrecisions)
    for (const Precision& to : kPrecisions) {
      CAPTURE(NameOf(from.dtype), NameOf(to.dtype));
      const Array x = Array::Random(from.dtype, {20011}, 1, 100);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array y(to.dtype, x.shape());
        Cast(context, x, y);
        return std::vector<Array>{y};
      });
      if (from.dtype == DType::f64 && to.dtype != DType::f64) {
        // The neighbours of the result are no nearer.
        CheckClose("y", got[0], x.values(),
                   to.dtype == DType::f32   ? 0x1p-24
                   : to.dtype == DType::f16 ? 0x1p-11
                                            : 0x1p-8);
      } else {
        CHECK(got[0] == x.To(to.dtype));
      }
    }
}

TEST_CASE("a cast from f64 to 16 bits rounds once") {
  // 1 + 2^-8 + 2^-40 lies just above the middle of two bf16; through fp32 it would become the tie and round down.
  const Array x = Array::Of(DType::f64, {4}, {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, 1 + 0x1p-11 + 0x1p-40, -1 - 0x1p-11});
  Array b(DType::bf16, {4}), h(DType::f16, {4});
  Cast({}, x, b);
  Cast({}, x, h);
  CHECK(b[0] == 1 + 0x1p-7);
  CHECK(b[1] == 1);
  CHECK(h[2] == 1 + 0x1p-10);
  CHECK(h[3] == -1);
}

TEST_CASE("casts keep infinities, NaN, signed zeros and denormals") {
  const double inf = std::numeric_limits<double>::infinity();
  const Array x = Array::Of(DType::f32, {9}, {inf, -inf, std::nan(""), -0.0, 1e-40, 70000, 3.4e38, 0x1p-24, 0x1p-133});
  for (DType to : {DType::bf16, DType::f16, DType::f64}) {
    CAPTURE(NameOf(to));
    Array y(to, {9}), back(DType::f32, {9});
    Cast({}, x, y);
    Cast({}, y, back);
    CHECK((y[0] == inf && y[1] == -inf && std::isnan(y[2]) && y[3] == 0 && std::signbit(y[3])));
    if (to == DType::f16) {
      CHECK((y[5] == inf && y[7] == 0x1p-24 && y[4] == 0));
    } else {
      CHECK((std::fabs(back[4] - 1e-40) <= 0x1p-134 && back[8] == 0x1p-133));
    }
    if (to == DType::bf16) CHECK(y[6] == inf);
  }
}

TEST_CASE("add rounds once and may work in place") {
  for (const Precision& p : kPrecisions) {
    const Array a = Array::Random(p.dtype, {8193}, 1), b = Array::Random(p.dtype, {8193}, 2);
    Values want(a.size());
    for (size_t i = 0; i < want.size(); ++i)
      want[i] = p.dtype == DType::f64 ? a[i] + b[i] : static_cast<float>(a[i]) + static_cast<float>(b[i]);
    const auto got = OnAnyThreads([&](const KernelContext& context) {
      Array y(p.dtype, a.shape()), left = a, right = b;
      Add(context, a, b, y);
      Add(context, left, b, left);
      Add(context, a, right, right);
      return std::vector<Array>{y, left, right};
    });
    for (const Array& y : got) CHECK(y == Array::Of(p.dtype, a.shape(), want));
  }
}

TEST_CASE("scale multiplies in place") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Array x = Array::Random(dtype, {20011}, 1);
    const auto got = OnAnyThreads([&](const KernelContext& context) {
      Array y = x;
      Scale(context, y, 0.75);
      return std::vector<Array>{y};
    });
    Values want = x.values();
    for (double& v : want) v *= 0.75;
    CheckClose("x", got[0], want, 1e-7);
  }
  Array narrow(DType::bf16, {3});
  CHECK_THROWS_AS(Scale({}, narrow, 2), std::invalid_argument);
}

TEST_CASE("bias gradients sum rows") {
  for (const Precision& p : kPrecisions)
    for (const Shape& s : {Shape{1, 1}, Shape{1, 65}, Shape{3, 63}, Shape{200, 129}, Shape{5, 40, 64}}) {
      CAPTURE(NameOf(p.dtype), s.str());
      const int64_t columns = s[s.rank() - 1];
      const Array dy = Array::Random(p.dtype, s, 1);
      const Array before = Array::Random(StatisticsType(p.dtype), {columns}, 2);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array written(before.dtype(), {columns}), added = before;
        BiasBackward(context, dy, written, false);
        BiasBackward(context, dy, added, true);
        return std::vector<Array>{written, added};
      });
      Values want(static_cast<size_t>(columns));
      for (size_t i = 0; i < dy.size(); ++i) want[i % want.size()] += dy[i];
      const double tolerance = p.dtype == DType::f64 ? 1e-13 : 2e-6;
      CheckClose("dbias", got[0], want, tolerance);
      for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
      CheckClose("dbias", got[1], want, tolerance);
    }
}

TEST_CASE("the sum of squares has its documented order") {
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{65536}, int64_t{65537}, int64_t{200003}}) {
      CAPTURE(NameOf(dtype), n);
      const Array x = Array::Random(dtype, {n}, 1);
      double want = 0;
      for (int64_t block = 0; block < n; block += 65536) {
        double lanes[16] = {};
        for (int64_t i = block; i < std::min(n, block + 65536); ++i) {
          const double v = x[static_cast<size_t>(i)];
          lanes[(i - block) % 16] += v * v;
        }
        double sum = 0;
        for (double lane : lanes) sum += lane;
        want += sum;
      }
      for (int threads : {1, 2, 3, 5}) {
        CHECK(SumOfSquares({threads}, x) == want);
        const Array sum = Array::Of(DType::f64, {1}, {0.5});
        const SquareTerm term[] = {{x, sum}};
        AddSumsOfSquares({threads}, term);
        CHECK(sum[0] == 0.5 + want);
      }
    }
}

TEST_CASE("sums of squares are added one term after another, several to one sum") {
  const std::vector<Array> values = {Array::Random(DType::f32, {70'001}, 1), Array::Random(DType::f64, {17}, 2, 1e8),
                                     Array(DType::f32, {0}), Array::Random(DType::f32, {5}, 3, 1e-3)};
  const size_t order[] = {0, 1, 2, 3, 1, 0}, to[] = {1, 0, 1, 0, 1, 0};
  const Array before = Array::Of(DType::f64, {2}, {0.1, 1e17});
  double want[] = {before[0], before[1]};
  for (size_t i = 0; i < 6; ++i) want[to[i]] += SumOfSquares({}, values[order[i]]);
  const auto got = OnAnyThreads([&](const KernelContext& context) {
    const Array sums = before;
    std::vector<SquareTerm> terms;
    for (size_t i = 0; i < 6; ++i)
      terms.push_back({values[order[i]], sums.tensor().Flat(static_cast<int64_t>(to[i]), 1)});
    AddSumsOfSquares(context, terms);
    return std::vector<Array>{sums};
  });
  CHECK(got[0] == Array::Of(DType::f64, {2}, {want[0], want[1]}));
  AddSumsOfSquares({}, {});
}

TEST_CASE("sums of squares refuse tensors that do not fit") {
  const Array x(DType::f32, {4}), half(DType::bf16, {4}), sum = Array::Of(DType::f64, {1}, {1}),
                                                          narrow(DType::f32, {1});
  const Array two(DType::f64, {2});
  Tensor elsewhere = x, null = x;
  elsewhere.device.kind = DeviceKind::cuda;
  null.data = nullptr;
  const SquareTerm good{x, sum};
  const std::vector<SquareTerm> bad_terms = {{half, sum}, {x, narrow},      {x, two},
                                             {x, {}},     {elsewhere, sum}, {null, sum}};
  for (const SquareTerm& bad : bad_terms) {
    const SquareTerm terms[] = {good, bad};
    const Array before = sum;
    CHECK_THROWS_AS(AddSumsOfSquares({}, terms), std::invalid_argument);
    CHECK(sum == before);
  }
}

TEST_CASE("the sum of squares propagates what is not finite") {
  Array x = Array::Of(DType::f32, {100}, Values(100, 1));
  x.Set(77, INFINITY);
  CHECK(std::isinf(SumOfSquares({}, x)));
  x.Set(99, std::nan(""));
  CHECK(std::isnan(SumOfSquares({}, x)));
}

TEST_CASE("parts are summed in order and rounded once") {
  for (const Precision& p : kPrecisions)
    for (int64_t n : kCounts) {
      CAPTURE(NameOf(p.dtype), n);
      std::vector<Array> parts;
      for (uint32_t rank = 0; rank < 5; ++rank) parts.push_back(Array::Random(p.dtype, {n}, rank, 1 + 100 * rank));
      Values want(static_cast<size_t>(n));
      for (size_t i = 0; i < want.size(); ++i) {
        double wide = parts[0][i];
        float narrow = static_cast<float>(parts[0][i]);
        for (size_t rank = 1; rank < 5; ++rank) wide += parts[rank][i], narrow += static_cast<float>(parts[rank][i]);
        want[i] = p.dtype == DType::f64 ? wide : narrow;
      }
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        std::vector<Tensor> tensors(parts.begin(), parts.end());
        Array out(p.dtype, {n}), first = parts[0];
        SumInOrder(context, tensors, out);
        tensors[0] = first;
        SumInOrder(context, tensors, first);
        return std::vector<Array>{out, first};
      });
      for (const Array& out : got) CHECK(out == Array::Of(p.dtype, {n}, want));
    }
  Array x(DType::f32, {4}), y(DType::f32, {5});
  const Tensor one[] = {x};
  CHECK_THROWS_AS(SumInOrder({}, one, y), std::invalid_argument);
  CHECK_THROWS_AS(SumInOrder({}, {}, y), std::invalid_argument);
}

TEST_CASE("elementwise kernels refuse tensors that do not fit") {
  Array x(DType::f32, {4}), y(DType::f32, {5}), z(DType::bf16, {4}), i(DType::i32, {4});
  CHECK_THROWS_AS(Cast({}, x, y), std::invalid_argument);
  CHECK_THROWS_AS(Cast({}, i, x), std::invalid_argument);
  CHECK_THROWS_AS(Add({}, x, z, x), std::invalid_argument);
  CHECK_THROWS_AS(BiasBackward({}, z, z, false), std::invalid_argument);
  Tensor elsewhere = x;
  elsewhere.device.kind = DeviceKind::cuda;
  CHECK_THROWS_AS(Add({}, x, elsewhere, x), std::invalid_argument);
  CHECK_THROWS_AS(SumOfSquares({}, elsewhere), std::invalid_argument);
  CHECK_THROWS_WITH(Fill({}, elsewhere, 0), "Fill: tensors are on a GPU, but this program was built without GPU code");
}

}  // namespace
}  // namespace ds::test
