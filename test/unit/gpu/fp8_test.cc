// 8-bit quantisation, products and linear layers on the GPU: codes bit for bit those of the CPU, products against fp64
// of the same codes.
#include "kernels/fp8.h"

#include <thread>

#include "kernels/fp8_linear.h"
#include "kernels/matmul.h"
#include "kernels/matmul_choice.h"
#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"
#include "test/unit/kernels/fp8_reference.h"

namespace ds::test {
namespace {

size_t Z(int64_t n) { return static_cast<size_t>(n); }

KernelContext AllCores() { return {static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))}; }

struct Quantized {
  Array codes, inverse, largest;
  std::vector<uint8_t> Bytes() const { return {codes.data(), codes.data() + codes.size()}; }
};

Quantized OnCpu(DType format, const Array& x, bool transpose) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  Quantized q{Array(format, transpose ? Shape{columns, rows} : Shape{rows, columns}), Array(DType::f32, {1}),
              Array(DType::i32, {1})};
  QuantizeFp8(AllCores(), x, transpose, q.codes, q.inverse, q.largest);
  return q;
}

Quantized OnGpu(const GpuContext& context, DType format, const Array& x, bool transpose, int64_t offset) {
  const int64_t rows = x.shape()[0], columns = x.shape()[1];
  const GpuArray in(x, offset), codes(format, transpose ? Shape{columns, rows} : Shape{rows, columns});
  const GpuArray inverse(DType::f32, {1}), largest(DType::i32, {1});
  QuantizeFp8(context, in, transpose, codes, inverse, largest);
  return {codes.Host(), inverse.Host(), largest.Host()};
}

void CompareCodes(const GpuContext& context, const Array& x) {
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (bool transpose : {false, true})
      for (int64_t offset : {0, 1}) {
        CAPTURE(NameOf(f->dtype), x.shape().str(), transpose, offset);
        const Quantized got = OnGpu(context, f->dtype, x, transpose, offset), want = OnCpu(f->dtype, x, transpose);
        CHECK(got.Bytes() == want.Bytes());
        CHECK(got.codes.Intact());
        CHECK(got.largest == want.largest);
        CheckSame(got.inverse, want.inverse);
      }
}

TEST_CASE("GPU: fp8: every bf16 number that a format has room for becomes its nearest code", "[own]") {
  const GpuContext context;
  for (const Fp8Format* f : {&kE4M3, &kE5M2}) {
    CAPTURE(NameOf(f->dtype));
    const double largest = Fp8Value(*f, f->largest_code);  // is among them: the scale is 1
    Values values(65536);
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const double x = std::bit_cast<float>(bits << 16);
      values[bits] = std::fabs(x) <= largest ? x : 0;
    }
    const Array x = Array::Of(DType::bf16, {256, 256}, values);
    const Quantized got = OnGpu(context, f->dtype, x, false, 0);
    CHECK(got.inverse[0] == 1);
    size_t wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) wrong += got.codes.data()[i] != NearestFp8(*f, x[i]);
    CHECK(wrong == 0);
  }
}

TEST_CASE("GPU: fp8: tensors become the CPU's codes, transposed or not, at any address", "[own]") {
  const GpuContext context;
  for (const Shape& shape : {Shape{16, 16}, Shape{16, 160}, Shape{208, 48}, Shape{112, 272}, Shape{128, 64},
                             Shape{256, 128}, Shape{1040, 4112}}) {
    if (LeftOut(shape.numel())) continue;
    Array x = Array::Random(DType::bf16, shape, 1, 3);
    x.Set(x.size() - 1, -1e-6);
    CompareCodes(context, x);
    x.Set(x.size() - 2, -1000);  // the largest comes last
    CompareCodes(context, x);
  }
}

TEST_CASE("GPU: fp8: zeros, the smallest and the largest numbers, infinities and NaN too", "[own]") {
  const GpuContext context;
  for (double special : {0.0, 0x1p-133, 0x1p-126, 1e-30, 448.0, 3.38e38, static_cast<double>(INFINITY),
                         -static_cast<double>(INFINITY), static_cast<double>(NAN)})
    for (size_t at : {size_t{0}, size_t{777}, size_t{48 * 32 - 1}}) {
      CAPTURE(special, at);
      Array x = Array::Of(DType::bf16, {48, 32}, Values(48 * 32));
      x.Set(5, std::isfinite(special) ? special / 3 : 7);
      x.Set(at, -special);
      CompareCodes(context, x);
    }
}

/// An array of codes, on the GPU.
GpuArray CodesOf(const Fp8Format& f, Shape shape, const std::vector<uint8_t>& codes) {
  Array a(f.dtype, shape);
  std::copy(codes.begin(), codes.end(), a.data());
  return GpuArray(a);
}

/// a b^T in fp64, on all cores.
Values InDouble(const Values& a, const Values& b, int64_t m, int64_t n, int64_t k) {
  const Array wide_a = Array::Of(DType::f64, {m, k}, a), wide_b = Array::Of(DType::f64, {n, k}, b);
  const Array c(DType::f64, {m, n});
  MatMul(AllCores(), wide_a, wide_b, c, {false, true, false, {}, 1.0f});
  return c.values();
}

Values Sizes(const Values& v) {
  return reference::Map(v, [](double x) { return std::fabs(x); });
}

/// Of the sum of the sizes of a sum's terms: how far tensor cores may be off, which keep some 14 bits of the terms that
/// they add, and of sums until those move to fp32 (Liu et al. 2024, "DeepSeek-V3 Technical Report", 3.3.2, saw 2% of
/// the largest result at K = 4096, where terms add up to 40 times the usual result). A wrong operand, scale or place is
/// off by the whole result.
double SumError(DType a) { return a == DType::f8_e4m3 ? 0x1p-9 : 0x1p-10; }

struct Output {
  DType c;
  bool bias, accumulate;
};
const Output kOutputs[] = {
    {DType::bf16, false, false}, {DType::bf16, true, false}, {DType::f32, false, false}, {DType::f32, false, true}};

struct Size {
  int64_t m, n, k;
};
const Size kSizes[] = {{16, 16, 16}, {48, 80, 176}, {272, 400, 1040}, {512, 768, 4096}};

void CompareProduct(const GpuContext& context, const Fp8Format& f, const Size& s, const Output& o) {
  CAPTURE(NameOf(f.dtype), s.m, s.n, s.k, NameOf(o.c), o.bias, o.accumulate);
  const Fp8Matrix a = QuantizeReference(f, Array::Random(DType::bf16, {s.m, s.k}, 1, 0.01));
  const Fp8Matrix b = QuantizeReference(kE4M3, Array::Random(DType::bf16, {s.n, s.k}, 2, 20));
  const GpuArray a_codes = CodesOf(f, {s.m, s.k}, a.codes), b_codes = CodesOf(kE4M3, {s.n, s.k}, b.codes);
  const GpuArray a_inverse(Array::Of(DType::f32, {1}, {a.inverse})), b_inverse(Array::Of(DType::f32, {1}, {b.inverse}));
  const Array bias = Array::Random(DType::bf16, {s.n}, 3), before = Array::Random(DType::f32, {s.m, s.n}, 4);
  const GpuArray on_gpu(bias);
  const auto run = [&] {
    const GpuArray c = o.accumulate ? GpuArray(before) : GpuArray(o.c, {s.m, s.n});
    MatMulFp8(context, a_codes, a_inverse, b_codes, b_inverse, o.bias ? on_gpu.tensor() : Tensor(), c, o.accumulate);
    return c.Host();
  };
  const Array got = run();
  CHECK(run() == got);
  Values want = InDouble(a.values, b.values, s.m, s.n, s.k);
  const Values bound = reference::Map(InDouble(Sizes(a.values), Sizes(b.values), s.m, s.n, s.k),
                                      [&f](double size) { return size * SumError(f.dtype); });
  for (size_t i = 0; i < want.size(); ++i) want[i] += (o.bias ? bias[i % Z(s.n)] : 0) + (o.accumulate ? before[i] : 0);
  CheckClose("c", got, want, o.c == DType::bf16 ? 8e-3 : 2e-6, bound);
}

TEST_CASE("GPU: fp8: products agree with fp64 of the same codes and repeat bit for bit", "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (const Size& s : kSizes) {
      if (LeftOut(s.m * s.n + s.k * (s.m + s.n))) continue;
      for (const Output& o : kOutputs) CompareProduct(context, *f, s, o);
    }
}

TEST_CASE("GPU: fp8: products of small whole numbers are exact, so that no element is in another's place",
          "[library]") {
  const GpuContext context(MatMulWorkspaceBytes());
  const int64_t m = 96, n = 144, k = 64;  // sums up to 256: bf16 and tensor cores hold them
  const auto whole = [](Shape shape, uint32_t seed) {
    Values values = Array::Random(DType::f32, shape, seed).values();
    for (double& v : values) v = std::clamp(std::round(v), -2.0, 2.0);
    return values;
  };
  const auto codes = [](const Fp8Format& f, const Values& values) {
    std::vector<uint8_t> out;
    for (double v : values) out.push_back(NearestFp8(f, v));
    return out;
  };
  const Values a = whole({m, k}, 1), b = whole({n, k}, 2);
  const GpuArray one(Array::Of(DType::f32, {1}, {1})), quarter(Array::Of(DType::f32, {1}, {0.25}));
  Values want = InDouble(a, b, m, n, k);
  for (double& v : want) v *= 0.25;
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (DType c_type : {DType::bf16, DType::f32})
      for (bool second : {false, true}) {  // which inverse is which
        CAPTURE(NameOf(f->dtype), NameOf(c_type), second);
        const GpuArray c(c_type, {m, n});
        MatMulFp8(context, CodesOf(*f, {m, k}, codes(*f, a)), second ? one : quarter,
                  CodesOf(kE4M3, {n, k}, codes(kE4M3, b)), second ? quarter : one, {}, c, false);
        CHECK(c.Host() == Array::Of(c_type, {m, n}, want));
      }
}

const LayerSize kLayers[] = {{16, 16, 16}, {48, 64, 80}, {112, 160, 32}, {272, 1040, 528}};

/// Bits differ from the CPU's by the order and precision of sums, which `sizes`, those of all terms, bound.
void CheckNear(const char* name, const Array& got, const Array& cpu, const Values& sizes, double error) {
  CheckClose(name, got, cpu.values(), got.dtype() == DType::bf16 ? 1.6e-2 : 4e-6,
             reference::Map(sizes, [error](double size) { return size * error; }));
}

void CompareLayer(const LayerSize& s, int64_t offset, bool accumulate) {
  CAPTURE(s.rows, s.in, s.out, offset, accumulate);
  const GpuContext context(Fp8LinearWorkspaceBytes(s.rows, s.in, s.out));
  const Array x = Array::Random(DType::bf16, {s.rows, s.in}, 1, 2), bias = Array::Random(DType::bf16, {s.out}, 3);
  const Array dy = Array::Random(DType::bf16, {s.rows, s.out}, 4, 1e-5);
  const Array weight = Array::Random(DType::bf16, {s.out, s.in}, 2, 0.02);
  const Array before = Array::Random(DType::f32, {s.out, s.in}, 5, 1e-4);
  const Tensor added = accumulate ? Tensor() : bias.tensor();  // either with one of the two
  const GpuArray gpu_x(x, offset), gpu_dy(dy, offset), gpu_weight(weight, offset), gpu_bias(bias);

  Array y(DType::bf16, {s.rows, s.out}), dx(DType::bf16, {s.rows, s.in});
  Array dw = accumulate ? before : Array(DType::f32, {s.out, s.in});
  Fp8LinearForward(AllCores(), x, weight, added, y);
  Fp8LinearBackwardInput(AllCores(), dy, weight, dx);
  Fp8LinearBackwardWeight(AllCores(), dy, x, dw, accumulate);

  const auto run = [&] {
    const GpuArray gpu_y(DType::bf16, {s.rows, s.out}), gpu_dx(DType::bf16, {s.rows, s.in});
    const GpuArray gpu_dw = accumulate ? GpuArray(before) : GpuArray(DType::f32, {s.out, s.in});
    Fp8LinearForward(context, gpu_x, gpu_weight, added ? gpu_bias.tensor() : Tensor(), gpu_y);
    Fp8LinearBackwardInput(context, gpu_dy, gpu_weight, gpu_dx);
    Fp8LinearBackwardWeight(context, gpu_dy, gpu_x, gpu_dw, accumulate);
    return std::vector<Array>{gpu_y.Host(), gpu_dx.Host(), gpu_dw.Host()};
  };
  const std::vector<Array> got = run();
  CHECK(run() == got);
  const Values turned = Transposed(Sizes(weight.values()), s.out, s.in);
  CheckNear("y", got[0], y, InDouble(Sizes(x.values()), Sizes(weight.values()), s.rows, s.out, s.in),
            SumError(DType::f8_e4m3));
  CheckNear("dx", got[1], dx, InDouble(Sizes(dy.values()), turned, s.rows, s.in, s.out), SumError(DType::f8_e5m2));
  CheckNear("dw", got[2], dw,
            InDouble(Transposed(Sizes(dy.values()), s.rows, s.out), Transposed(Sizes(x.values()), s.rows, s.in), s.out,
                     s.in, s.rows),
            SumError(DType::f8_e5m2));
}

TEST_CASE("GPU: fp8: linear layers follow the CPU, from operands at any address, and repeat bit for bit", "[library]") {
  for (const LayerSize& s : kLayers) {
    if (LeftOut(s.in * s.out)) continue;
    for (int64_t offset : {0, 1})
      for (bool accumulate : {false, true}) CompareLayer(s, offset, accumulate);
  }
}

TEST_CASE("GPU: fp8: what is not finite makes every product not finite", "[library]") {
  const GpuContext context(Fp8LinearWorkspaceBytes(32, 48, 64));
  for (double bad : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    Array x = Array::Random(DType::bf16, {32, 48}, 1), dy = Array::Random(DType::bf16, {32, 64}, 2);
    x.Set(100, bad), dy.Set(7, bad);
    const GpuArray weight(Array::Random(DType::bf16, {64, 48}, 3)), gpu_x(x), gpu_dy(dy);
    const GpuArray y(DType::bf16, {32, 64}), dx(DType::bf16, {32, 48}), dw(Array::Random(DType::f32, {64, 48}, 4));
    Fp8LinearForward(context, gpu_x, weight, {}, y);
    Fp8LinearBackwardInput(context, gpu_dy, weight, dx);
    Fp8LinearBackwardWeight(context, gpu_dy, GpuArray(Array::Random(DType::bf16, {32, 48}, 5)), dw, true);
    for (const GpuArray* out : {&y, &dx, &dw})
      for (double v : out->Host().values()) REQUIRE(std::isnan(v));
  }
}

TEST_CASE("GPU: fp8: shapes, addresses and workspaces that will not do are refused", "[library]") {
  const GpuContext context(Fp8LinearWorkspaceBytes(32, 48, 64)), small(MatMulWorkspaceBytes());
  const GpuArray x(Array::Random(DType::bf16, {32, 48}, 1)), weight(Array::Random(DType::bf16, {64, 48}, 3));
  const GpuArray y(DType::bf16, {32, 64}), moved(DType::bf16, {32, 64}, 1), odd(DType::bf16, {33, 64});
  CHECK_NOTHROW(Fp8LinearForward(context, x, weight, {}, y));
  CHECK_THROWS_AS(Fp8LinearForward(small, x, weight, {}, y), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearForward(context, x, weight, {}, moved), std::invalid_argument);
  CHECK_THROWS_AS(Fp8LinearForward(context, GpuArray(DType::bf16, {33, 48}), weight, {}, odd), std::invalid_argument);
}

/// Takes the table of choices away again.
struct NoChoices {
  ~NoChoices() { SetMatMulChoices(0, {}); }
};

TEST_CASE("GPU: fp8: every timed algorithm gives the product, and takes its place in the table", "[library][slow]") {
  const NoChoices at_the_end;
  const GpuContext context(MatMulWorkspaceBytes());
  const Size s{256, 384, 2048};
  for (const Fp8Format* f : {&kE4M3, &kE5M2})
    for (const Output& o : kOutputs) {
      MatMulKey key{s.m, s.n, s.k, f->dtype, o.c, false, true, o.accumulate};
      if (o.bias) key.epilogue = MatMulEpilogue::bias;
      const auto candidates = TimeMatMulCandidates(context, key, 4);
      CHECK(!candidates.empty());
      for (const MatMulCandidate& candidate : candidates) {
        CAPTURE(candidate.description);
        CHECK(candidate.seconds > 0);
        SetMatMulChoices(MatMulLibraryVersion(), {{key, candidate.algorithm}});
        CompareProduct(context, *f, s, o);
      }
    }
}

}  // namespace
}  // namespace ds::test
