// Matrix products in every dtype, orientation and mode, on shapes around the tiles' edges.
#include "kernels/matmul.h"

#include <thread>

#include "kernels/matmul_own.h"
#include "kernels/matmul_packed.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Size {
  int64_t m, n, k;
};
const Size kSizes[] = {{1, 1, 1},    {1, 37, 19},   {53, 1, 7},     {17, 31, 1},
                       {64, 64, 64}, {257, 33, 40}, {40, 513, 129}, {300, 600, 67}};

enum class Mode { plain, accumulate, bias, f32_bias };

size_t Z(int64_t n) { return static_cast<size_t>(n); }

/// All modes of one product.
void Compare(const Precision& p, DType c_type, Size s, bool ta, bool tb, float alpha) {
  const Array a = Array::Random(p.dtype, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
  const Array b = Array::Random(p.dtype, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
  const Array before = Array::Random(c_type, {s.m, s.n}, 3);
  const Values product = reference::MatMul(Z(s.m), Z(s.n), Z(s.k), a.values(), ta, b.values(), tb, alpha);
  for (Mode mode : {Mode::plain, Mode::accumulate, Mode::bias, Mode::f32_bias}) {
    CAPTURE(NameOf(p.dtype), NameOf(c_type), s.m, s.n, s.k, ta, tb, static_cast<int>(mode), alpha);
    const bool with_bias = mode == Mode::bias || mode == Mode::f32_bias;
    const Array bias = Array::Random(mode == Mode::f32_bias ? StatisticsType(p.dtype) : p.dtype, {s.n}, 4, 3);
    const auto got = OnAnyThreads([&](const KernelContext& context) {
      Array c = mode == Mode::accumulate ? before : Array(c_type, {s.m, s.n});
      MatMul(context, a, b, c, {ta, tb, mode == Mode::accumulate, with_bias ? bias.tensor() : Tensor(), alpha});
      return std::vector<Array>{c};
    });
    Values want = product;
    for (size_t i = 0; i < want.size(); ++i) {
      if (mode == Mode::accumulate) want[i] += before[i];
      if (with_bias) want[i] += bias[i % Z(s.n)];
    }
    CheckClose("c", got[0], want, c_type == DType::f32 ? 4e-6 : p.tolerance);
  }
}

TEST_CASE("matrix products agree with the formula in every dtype, orientation and mode") {
  for (const Precision& p : kPrecisions)
    for (const Size& s : kSizes)
      for (int orientation = 0; orientation < 4; ++orientation)
        Compare(p, p.dtype, s, orientation & 1, orientation & 2, 1.0f);
}

TEST_CASE("matrix products of 16-bit matrices can be f32") {
  for (DType dtype : {DType::bf16, DType::f16})
    for (const Size& s : {Size{257, 33, 40}, Size{40, 513, 700}}) Compare({dtype, 0}, DType::f32, s, false, true, 1.0f);
}

TEST_CASE("alpha scales the product and not the bias") {
  for (const Precision& p : kPrecisions) Compare(p, p.dtype, {70, 40, 23}, false, true, 0.125f);
}

TEST_CASE("tensors of more dimensions are matrices of their last one") {
  const Array a = Array::Random(DType::f32, {2, 3, 4, 5}, 1), b = Array::Random(DType::f32, {5, 6}, 2);
  Array c(DType::f32, {4, 6, 6});
  MatMul({}, a, b, c);
  CheckClose("c", c, reference::MatMul(24, 6, 5, a.values(), false, b.values(), false), 2e-6);
}

TEST_CASE("a block of a larger matrix is multiplied in place") {
  for (const Precision& p : kPrecisions)
    for (int orientation = 0; orientation < 4; ++orientation) {
      const bool ta = orientation & 1, tb = orientation & 2;
      CAPTURE(NameOf(p.dtype), ta, tb);
      // a: [9, 11] within rows of 20, b: [11, 7] within rows of 17, c within rows of 13.
      const Array a = Array::Random(p.dtype, {20, 20}, 1), b = Array::Random(p.dtype, {20, 17}, 2);
      Values dense_a, dense_b;
      for (size_t i = 0; i < 9; ++i)
        for (size_t l = 0; l < 11; ++l) dense_a.push_back(ta ? a[l * 20 + i] : a[i * 20 + l]);
      for (size_t l = 0; l < 11; ++l)
        for (size_t j = 0; j < 7; ++j) dense_b.push_back(tb ? b[j * 17 + l] : b[l * 17 + j]);
      Values product = reference::MatMul(9, 7, 11, dense_a, false, dense_b, false);
      Array c = Array::Random(p.dtype, {9, 13}, 3);
      const Array before = c;
      MatMulBlock(p.dtype, p.dtype, 9, 7, 11, a.data(), 20, ta, b.data(), 17, tb, c.data(), 13, true);
      Values want = before.values();
      for (size_t i = 0; i < 9; ++i)
        for (size_t j = 0; j < 7; ++j) want[i * 13 + j] += product[i * 7 + j];
      CheckClose("c", c, want, p.tolerance);
      for (size_t i = 0; i < 9; ++i)
        for (size_t j = 7; j < 13; ++j) REQUIRE(c[i * 13 + j] == before[i * 13 + j]);
    }
}

TEST_CASE("what oneDNN declines on older CPUs goes through fp32") {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Array a = Array::Random(dtype, {300, 1100}, 1), b = Array::Random(dtype, {1100, 70}, 2);
    Array c = Array::Random(DType::f32, {300, 70}, 3);
    Values want = reference::MatMul(300, 70, 1100, a.values(), false, b.values(), false, 0.5);
    for (size_t i = 0; i < want.size(); ++i) want[i] += c[i];
    detail::BlockProduct p;
    p.alpha = 0.5f, p.accumulate = true;
    p.ab = dtype, p.c_type = DType::f32, p.m = 300, p.n = 70, p.k = 1100;
    p.a = a.data(), p.lda = 1100, p.b = b.data(), p.ldb = 70, p.c = c.data(), p.ldc = 70;
    detail::MultiplyConverted(p);
    CheckClose("c", c, want, 4e-6);
  }
}

TEST_CASE("packed products agree with the formula beyond one slab in each direction") {
  for (const detail::PackedKernel* kernel : {detail::Avx512Kernel(), detail::AmxKernel()}) {
    if (!kernel) continue;  // not on this CPU
    const DType dtype = kernel->type;
    for (const Size& s : {Size{1030, 45, 70}, Size{19, 1100, 33}, Size{37, 50, 2100}})
      for (int orientation = 0; orientation < 4; ++orientation)
        for (DType c_type : {dtype, DType::f32}) {
          const bool ta = orientation & 1, tb = orientation & 2;
          CAPTURE(kernel->name, s.m, s.n, s.k, ta, tb, NameOf(c_type));
          const Array a = Array::Random(dtype, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
          const Array b = Array::Random(dtype, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
          const Array before = Array::Random(c_type, {s.m, s.n}, 3);
          Values want = reference::MatMul(Z(s.m), Z(s.n), Z(s.k), a.values(), ta, b.values(), tb);
          for (size_t i = 0; i < want.size(); ++i) want[i] += before[i];
          const auto got = OnAnyThreads([&](const KernelContext& context) {
            Array c = before;
            detail::BlockProduct p;
            p.ab = dtype, p.c_type = c_type, p.m = s.m, p.n = s.n, p.k = s.k;
            p.transpose_a = ta, p.transpose_b = tb, p.accumulate = true;
            p.a = a.data(), p.lda = ta ? s.m : s.k, p.b = b.data(), p.ldb = tb ? s.k : s.n;
            p.c = c.data(), p.ldc = s.n;
            detail::MultiplyPacked(*kernel, context, p);
            return std::vector<Array>{c};
          });
          CheckClose("c", got[0], want, c_type == DType::f32 ? 4e-6 : 0.01);
        }
  }
}

TEST_CASE("a packed product's rows have the same bits alone as among others") {
  for (const detail::PackedKernel* kernel : {detail::Avx512Kernel(), detail::AmxKernel()}) {
    if (!kernel) continue;
    const int64_t m = 61, n = 90, k = 1500;
    const Array a = Array::Random(kernel->type, {m, k}, 1), b = Array::Random(kernel->type, {n, k}, 2);
    const auto multiply = [&](int64_t first_row, int64_t rows) {
      Array c(DType::f32, {rows, n});
      detail::BlockProduct p;
      p.ab = kernel->type, p.m = rows, p.n = n, p.k = k, p.transpose_b = true;
      p.a = static_cast<const char*>(a.tensor().data) + first_row * k * static_cast<int64_t>(SizeOf(kernel->type));
      p.lda = k, p.b = b.data(), p.ldb = k, p.c = c.data(), p.ldc = n;
      detail::MultiplyPacked(*kernel, {}, p);
      return c;
    };
    const Array all = multiply(0, m);
    for (int64_t row : {0, 13, 14, 60}) {
      const Array one = multiply(row, 1);
      for (int64_t j = 0; j < n; ++j) REQUIRE(one[Z(j)] == all[Z(row * n + j)]);
    }
  }
}

TEST_CASE("oneDNN multiplies where the CPU has no kernel of ours") {
  for (int orientation = 0; orientation < 4; ++orientation) {
    const bool ta = orientation & 1, tb = orientation & 2;
    const Array a = Array::Random(DType::f32, ta ? Shape{70, 53} : Shape{53, 70}, 1);
    const Array b = Array::Random(DType::f32, tb ? Shape{47, 70} : Shape{70, 47}, 2);
    Array c(DType::f32, {53, 47});
    detail::BlockProduct p;
    p.m = 53, p.n = 47, p.k = 70, p.transpose_a = ta, p.transpose_b = tb;
    p.a = a.data(), p.lda = ta ? 53 : 70, p.b = b.data(), p.ldb = tb ? 70 : 47, p.c = c.data(), p.ldc = 47;
    REQUIRE(detail::MultiplyWithOneDnn(p));
    CheckClose("c", c, reference::MatMul(53, 47, 70, a.values(), ta, b.values(), tb), 4e-6);
  }
}

TEST_CASE("ranks that live as threads of one process multiply at the same time") {
  const Array a = Array::Random(DType::f32, {90, 50}, 1), b = Array::Random(DType::f32, {50, 40}, 2);
  Array want(DType::f32, {90, 40});
  MatMul({}, a, b, want);
  std::vector<Array> got(8, Array(DType::f32, {90, 40}));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.emplace_back([&, rank] {
      for (int64_t rows = 1; rows <= 90; ++rows) {  // shapes no other test created: the cache is filled by all at once
        Tensor part(a.tensor().data, DType::f32, {rows, 50}), out(got[Z(rank)].data(), DType::f32, {rows, 40});
        MatMul({1 + rank % 2}, part, b, out);
      }
    });
  for (auto& rank : ranks) rank.join();
  for (const Array& c : got) CheckClose("c", c, want.values(), 2e-6);
}

TEST_CASE("matrix products refuse tensors that do not fit") {
  Array a(DType::f32, {4, 5}), b(DType::f32, {5, 6}), c(DType::f32, {4, 6}), bias(DType::f32, {6});
  Array narrow(DType::bf16, {4, 5}), wide(DType::f64, {5, 6});
  CHECK_NOTHROW(MatMul({}, a, b, c));
  CHECK_THROWS_AS(MatMul({}, b, a, c), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, b, c, {true, false, false, {}, 1.0f}), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, b, a), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, narrow, b, c), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, wide, c), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, b, Array(DType::bf16, {4, 6})), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, b, c, {false, false, true, bias, 1.0f}), std::invalid_argument);
  CHECK_THROWS_AS(MatMul({}, a, b, c, {false, false, false, a, 1.0f}), std::invalid_argument);
  Tensor elsewhere = a;
  elsewhere.device.kind = DeviceKind::cuda;
  CHECK_THROWS_AS(MatMul({}, elsewhere, b, c), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
