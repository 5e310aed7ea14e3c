// Matrix products on the GPU against fp64.
#include "kernels/matmul.h"

#include "kernels/matmul_choice.h"
#include "kernels/matmul_fallback.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/reference.h"

namespace ds::test {
namespace {

struct Size {
  int64_t m, n, k;
};
const Size kSmall[] = {{1, 1, 1},    {1, 7, 33},   {7, 1, 33},    {33, 7, 1},    {7, 33, 768},
                       {64, 64, 64}, {33, 100, 7}, {129, 65, 40}, {1, 1000, 96}, {200, 33, 1000}};
const Size kLarge[] = {{768, 1000, 4096}, {4096, 33, 768}, {257, 4096, 1000}, {512, 512, 8192}, {1000, 7, 4096}};

struct Types {
  DType ab, c;
};
const Types kTypes[] = {{DType::f64, DType::f64},  {DType::f32, DType::f32}, {DType::bf16, DType::bf16},
                        {DType::bf16, DType::f32}, {DType::f16, DType::f16}, {DType::f16, DType::f32}};

enum class Mode { plain, accumulate, bias, other_bias, alpha };
const Mode kModes[] = {Mode::plain, Mode::accumulate, Mode::bias, Mode::other_bias, Mode::alpha};

size_t Z(int64_t n) { return static_cast<size_t>(n); }

/// Half the distance between 1 and the next number.
double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}

Array Absolute(const Array& x) {
  Values values = x.values();
  for (double& v : values) v = std::fabs(v);
  return Array::Of(x.dtype(), x.shape(), values);
}

cuda::LtProduct Describe(const Tensor& a, const Tensor& b, const Tensor& c, bool ta, bool tb) {
  MatMulOptions options;
  options.transpose_a = ta, options.transpose_b = tb;
  return cuda::ProductOf(a, b, c, options);
}

/// op(a) op(b) in fp64, by the plain kernel, which has its own test against the formula.
Values InDouble(const GpuContext& context, const Array& a, const Array& b, Size s, bool ta, bool tb) {
  const GpuArray wide_a(a.To(DType::f64)), wide_b(b.To(DType::f64)), c(DType::f64, {s.m, s.n});
  cuda::MultiplyPlainly(context, Describe(wide_a, wide_b, c, ta, tb));
  return c.Host().values();
}

/// A product's operands, and what it is in fp64.
struct Operands {
  Array a, b;
  Values product;    ///< op(a) op(b)
  Values magnitude;  ///< |op(a)| |op(b)|
  Operands(const GpuContext& context, DType dtype, Size s, bool ta, bool tb)
      : a(Array::Random(dtype, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1)),
        b(Array::Random(dtype, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2)),
        product(InDouble(context, a, b, s, ta, tb)),
        magnitude(InDouble(context, Absolute(a), Absolute(b), s, ta, tb)) {}
};

/// What is added to a product of `terms` terms whose absolute values add up to `magnitude` before it is rounded to a
/// dtype. Rounding errors of k sums grow as sqrt(k) with a probability near 1 (Higham and Mary 2019, theorem 2.4 with a
/// constant of 4); tensor cores cut off rather than round, so a sum's error is up to twice that of fp32.
double SumError(DType ab, int64_t terms, double magnitude) {
  const double step = 2 * UnitRoundoff(ab == DType::f64 ? DType::f64 : DType::f32);
  return step * (4 * std::sqrt(static_cast<double>(terms)) + 2) * magnitude;
}

void CheckWithin(const Array& got, const Values& want, const Values& bound) {
  REQUIRE(got.size() == want.size());
  CHECK(got.Intact());
  size_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i)
    if (!(std::fabs(got[i] - want[i]) <= bound[i]) && wrong++ == 0) {
      INFO("element " << i << ": got " << got[i] << ", want " << want[i] << " within " << bound[i]);
      CHECK(false);
    }
  CHECK(wrong == 0);
}

/// One product in one mode, twice: the same bits, and within the error bound of fp64.
void Compare(const GpuContext& context, const Operands& in, Types types, Size s, bool ta, bool tb, Mode mode,
             int64_t offset) {
  CAPTURE(NameOf(types.ab), NameOf(types.c), s.m, s.n, s.k, ta, tb, static_cast<int>(mode), offset);
  const double alpha = mode == Mode::alpha ? 0.3f : 1;
  const bool has_bias = mode == Mode::bias || mode == Mode::other_bias;
  const DType other = types.c == types.ab ? StatisticsType(types.ab) : types.ab;
  const Array bias = Array::Random(mode == Mode::bias ? types.c : other, {s.n}, 3, 4);
  const Array before = Array::Random(types.c, {s.m, s.n}, 5);
  const GpuArray a(in.a, offset), b(in.b, offset), on_gpu(bias, offset);
  const auto multiply = [&] {
    const GpuArray c = mode == Mode::accumulate ? GpuArray(before, offset) : GpuArray(types.c, {s.m, s.n}, offset);
    MatMul(context, a, b, c,
           {ta, tb, mode == Mode::accumulate, has_bias ? on_gpu.tensor() : Tensor(), static_cast<float>(alpha)});
    return c.Host();
  };
  const Array got = multiply();
  CHECK(multiply() == got);

  Values want = in.product, bound(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double addend = mode == Mode::accumulate ? before[i] : has_bias ? bias[i % Z(s.n)] : 0;
    const double product = alpha * want[i];
    want[i] = product + addend;
    bound[i] = SumError(types.ab, s.k + 1, alpha * in.magnitude[i] + std::fabs(addend));
    // Rounded when stored, and possibly before something is added.
    const double stored = std::fabs(want[i]) + (addend != 0 ? std::fabs(product) : 0);
    bound[i] += 1.01 * UnitRoundoff(types.c) * (stored + bound[i]) + (types.c == DType::f16 ? 0x1p-24 : 0);
  }
  CheckWithin(got, want, bound);
}

TEST_CASE("GPU: plain products agree with the formula, for every dtype, orientation, shape and address", "[own]") {
  const GpuContext context;
  for (const Types& types : kTypes)
    for (const Size& s : {Size{1, 1, 1}, Size{33, 70, 45}, Size{65, 7, 100}, Size{1, 100, 33}})
      for (int orientation = 0; orientation < 4; ++orientation)
        for (bool accumulate : {false, true}) {
          const bool ta = orientation & 1, tb = orientation & 2;
          CAPTURE(NameOf(types.ab), NameOf(types.c), s.m, s.n, s.k, ta, tb, accumulate);
          const Array a = Array::Random(types.ab, ta ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
          const Array b = Array::Random(types.ab, tb ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
          const Array before = Array::Random(types.c, {s.m, s.n}, 3);
          const GpuArray on_gpu_a(a, 1), on_gpu_b(b, 1);
          const GpuArray c = accumulate ? GpuArray(before, 3) : GpuArray(types.c, {s.m, s.n}, 3);
          cuda::LtProduct p = Describe(on_gpu_a, on_gpu_b, c, ta, tb);
          p.accumulate = accumulate, p.alpha = 0.5f;
          cuda::MultiplyPlainly(context, p);
          Values want = reference::MatMul(Z(s.m), Z(s.n), Z(s.k), a.values(), ta, b.values(), tb, 0.5);
          const Values magnitude =
              reference::MatMul(Z(s.m), Z(s.n), Z(s.k), Absolute(a).values(), ta, Absolute(b).values(), tb, 0.5);
          Values bound(want.size());
          for (size_t i = 0; i < want.size(); ++i) {
            const double addend = accumulate ? before[i] : 0;
            want[i] += addend;
            bound[i] = SumError(types.ab, s.k + 1, magnitude[i] + std::fabs(addend));
            bound[i] +=
                1.01 * UnitRoundoff(types.c) * (std::fabs(want[i]) + bound[i]) + (types.c == DType::f16 ? 0x1p-24 : 0);
          }
          CheckWithin(c.Host(), want, bound);
        }
}

TEST_CASE("GPU: a bias is added to every row, of a matrix of many rows too", "[own]") {
  const GpuContext context;
  for (const Precision& c_type : kPrecisions)
    for (const Precision& bias_type : kPrecisions)
      for (const Shape& s : {Shape{1, 1}, Shape{3, 300}, Shape{70'000, 7}}) {
        CAPTURE(NameOf(c_type.dtype), NameOf(bias_type.dtype), s.str());
        const Array c = Array::Random(c_type.dtype, s, 1), bias = Array::Random(bias_type.dtype, {s[1]}, 2);
        Values want = c.values(), bound(want.size());
        const bool wide = c_type.dtype == DType::f64;
        for (size_t i = 0; i < want.size(); ++i) {
          const double addend = wide ? bias[i % Z(s[1])] : static_cast<float>(bias[i % Z(s[1])]);
          want[i] += addend;
          bound[i] = 1.01 * UnitRoundoff(c_type.dtype) * std::fabs(want[i]) +
                     (wide ? 0 : 0x1p-24) * (std::fabs(want[i]) + std::fabs(addend)) +
                     (c_type.dtype == DType::f16 ? 0x1p-25 : 0);
        }
        const GpuArray got(c, 1);
        cuda::AddBiasToRows(context, GpuArray(bias, 1), got);
        CheckWithin(got.Host(), want, bound);
      }
}

TEST_CASE("GPU: matrix products in every dtype, orientation, mode and shape, at any address, repeat bit for bit",
          "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (const Types& types : kTypes)
    for (const Size& s : kSmall)
      for (int orientation = 0; orientation < 4; ++orientation) {
        if (LeftOut(s.m * s.n + s.k * (s.m + s.n))) continue;
        const bool ta = orientation & 1, tb = orientation & 2;
        const Operands in(context, types.ab, s, ta, tb);
        for (Mode mode : kModes)
          for (int64_t offset : {0, 1, 4}) Compare(context, in, types, s, ta, tb, mode, offset);
      }
}

TEST_CASE("GPU: large matrix products too", "[library][slow]") {
  const GpuContext context(MatMulWorkspaceBytes());
  size_t turn = 0;
  for (const Types& types : kTypes)
    for (const Size& s : kLarge) {
      const size_t orientation = turn++ % 3;  // forward, gradients of inputs, of weights; each size meets all
      const bool ta = orientation == 2, tb = orientation == 0;
      const Operands in(context, types.ab, s, ta, tb);
      Compare(context, in, types, s, ta, tb, Mode::accumulate, 0);
      Compare(context, in, types, s, ta, tb, Mode::accumulate, 1);
      Compare(context, in, types, s, ta, tb, Mode::bias, 0);
    }
}

TEST_CASE("GPU: the library computes what models multiply", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  const auto computed = [&](Types types, MatMulEpilogue epilogue, bool accumulate) {
    const GpuArray a(Array::Random(types.ab, {64, 96}, 1)), b(Array::Random(types.ab, {128, 96}, 2));
    const GpuArray c(Array::Random(types.c, {64, 128}, 3)), bias(Array::Random(types.c, {128}, 4));
    const GpuArray saved(Array::Random(types.c, {64, 128}, 5));
    cuda::LtProduct p = Describe(a, b, c, false, true);
    p.epilogue = epilogue, p.accumulate = accumulate;
    if (epilogue == MatMulEpilogue::bias || epilogue == MatMulEpilogue::bias_gelu) p.bias = bias.tensor().data;
    if (epilogue != MatMulEpilogue::none && epilogue != MatMulEpilogue::bias) p.aux = saved.tensor().data;
    return cuda::MultiplyWithLt(context, "MatMul", p);
  };
  for (const Types& types : kTypes) {
    CAPTURE(NameOf(types.ab), NameOf(types.c));
    CHECK(computed(types, MatMulEpilogue::none, false));
    CHECK(computed(types, MatMulEpilogue::none, true));
    if (types.ab == DType::f64) continue;  // for tests alone
    CHECK(computed(types, MatMulEpilogue::bias, false));
    if (types.c != types.ab || types.ab == DType::f32) continue;  // not fused (linear.h)
    for (MatMulEpilogue epilogue : {MatMulEpilogue::gelu, MatMulEpilogue::bias_gelu, MatMulEpilogue::gelu_backward})
      CHECK(computed(types, epilogue, false));
  }
}

TEST_CASE("GPU: fp32 products keep all 24 bits: a matrix times the identity is the matrix", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (int64_t n : {8, 64, 1024}) {
    Array identity = Array::Of(DType::f32, {n, n}, Values(Z(n * n)));
    for (int64_t i = 0; i < n; ++i) identity.Set(Z(i * n + i), 1);
    const Array x = Array::Random(DType::f32, {2 * n, n}, 1);
    const GpuArray c(DType::f32, {2 * n, n});
    MatMul(context, GpuArray(x), GpuArray(identity), c);
    CHECK(c.Host() == x);
  }
}

TEST_CASE("GPU: products without rows or columns write nothing", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  const GpuArray some(Array::Random(DType::f32, {5, 7}, 1)), none(DType::f32, {0, 5});
  CHECK_NOTHROW(MatMul(context, none, some, GpuArray(DType::f32, {0, 7})));
}

TEST_CASE("GPU: a product without the workspace that it needs is refused", "[library]") {
  const GpuContext context(1024);
  const GpuArray x(Array::Random(DType::f32, {64, 64}, 1)), c(DType::f32, {64, 64});
  CHECK_THROWS_AS(MatMul(context, x, x, c), std::invalid_argument);
}

/// Takes the table of choices away again.
struct NoChoices {
  ~NoChoices() { SetMatMulChoices(0, {}); }
};

TEST_CASE("GPU: every timed algorithm gives the product, the same bits each time, and takes its place in the table",
          "[library][slow]") {
  const NoChoices at_the_end;
  const GpuContext context(MatMulWorkspaceBytes());
  const Size s{256, 384, 2048};
  for (const Types& types : kTypes) {
    const Operands in(context, types.ab, s, false, true);
    for (Mode mode : {Mode::plain, Mode::accumulate, Mode::bias}) {
      if (types.ab == DType::f64 && mode == Mode::bias) continue;
      MatMulKey key{s.m, s.n, s.k, types.ab, types.c, false, true, mode == Mode::accumulate};
      if (mode == Mode::bias) key.epilogue = MatMulEpilogue::bias;
      const auto candidates = TimeMatMulCandidates(context, key, 8);
      CAPTURE(NameOf(types.ab), NameOf(types.c), static_cast<int>(mode));
      CHECK(!candidates.empty());
      for (size_t i = 0; i < candidates.size(); ++i) {
        CAPTURE(candidates[i].description);
        CHECK(candidates[i].seconds > 0);
        CHECK(candidates[i].seconds >= candidates[i ? i - 1 : 0].seconds);
        CHECK(candidates[i].workspace_bytes <= MatMulWorkspaceBytes());
        SetMatMulChoices(MatMulLibraryVersion(), {{key, candidates[i].algorithm}});
        Compare(context, in, types, s, false, true, mode, 0);
      }
    }
  }
}

TEST_CASE("GPU: choices for another library, or that the library cannot run, are refused by name", "[library]") {
  const NoChoices at_the_end;
  const GpuContext context(MatMulWorkspaceBytes());
  const GpuArray x(Array::Random(DType::f32, {64, 64}, 1)), c(DType::f32, {64, 64});
  const MatMulChoices nonsense{{{64, 64, 64, DType::f32, DType::f32}, MatMulAlgorithm{}}};
  CHECK_THROWS_AS(SetMatMulChoices(MatMulLibraryVersion() + 1, nonsense), std::invalid_argument);
  MatMul(context, x, x, c);
  SetMatMulChoices(MatMulLibraryVersion(), nonsense);
  CHECK_THROWS_AS(MatMul(context, x, x, c), std::runtime_error);
  CHECK_NOTHROW(MatMul(context, x, x, c, {false, true, false, {}, 1.0f}));  // another product
  SetMatMulChoices(0, {});
  CHECK_NOTHROW(MatMul(context, x, x, c));
}

}  // namespace
}  // namespace ds::test
