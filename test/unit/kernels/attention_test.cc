// Attention: forward against the plain fp64 formula, backward in fp64 against central differences of that formula and
// in the other dtypes against the fp64 kernel; dropout masks from the counter-based generator.
#include "kernels/attention.h"

#include <array>

#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  AttentionShape shape;
  float dropout;
};

// Token counts around the block of 64 rows; group sizes 1, 2, 3, 4; head sizes 16..128 and an odd one.
const Case kCases[] = {
    {{1, 1, 1, 1, 16}, 0},   {{2, 7, 2, 1, 16}, 0.2f},   {{1, 64, 2, 2, 32}, 0},  {{1, 65, 3, 1, 64}, 0.1f},
    {{2, 131, 4, 2, 24}, 0}, {{1, 129, 4, 1, 80}, 0.3f}, {{1, 70, 1, 1, 128}, 0}, {{1, 200, 2, 1, 7}, 0.5f},
};

AttentionDropout DropoutOf(const Case& c) { return {c.dropout, {0x1234567890abcdefu, 42}, 3}; }

/// The factor of probability `index` counted from sample 0, written from the documentation of the stream alone.
std::function<double(uint64_t)> FactorOf(const Case& c) {
  const AttentionDropout d = DropoutOf(c);
  const uint64_t offset = d.first_sample * static_cast<uint64_t>(c.shape.heads * c.shape.tokens * c.shape.tokens);
  return [d, offset](uint64_t index) {
    if (d.p == 0) return 1.0;
    const uint64_t i = offset + index;
    const auto words = Philox({static_cast<uint32_t>(i / 4), static_cast<uint32_t>((i / 4) >> 32),
                               static_cast<uint32_t>(d.stream.site), static_cast<uint32_t>(d.stream.site >> 32)},
                              {static_cast<uint32_t>(d.stream.seed), static_cast<uint32_t>(d.stream.seed >> 32)});
    return words[i % 4] >= static_cast<double>(d.p) * 4294967296.0 ? 1 / (1 - static_cast<double>(d.p)) : 0.0;
  };
}

Shape QkvShape(const AttentionShape& s) { return {s.batch, s.tokens, s.heads + 2 * s.kv_heads, s.head_size}; }

reference::AttentionResult Reference(const Case& c, const Values& qkv) {
  const auto& s = c.shape;
  return reference::Attention(static_cast<size_t>(s.batch), static_cast<size_t>(s.tokens), static_cast<size_t>(s.heads),
                              static_cast<size_t>(s.kv_heads), static_cast<size_t>(s.head_size), qkv, FactorOf(c));
}

/// {out, log_sum_exp}
std::vector<Array> Forward(const Case& c, const Array& qkv) {
  const auto& s = c.shape;
  return OnAnyThreads([&](const KernelContext& context) {
    Array out(qkv.dtype(), {s.batch, s.tokens, s.heads * s.head_size});
    Array lse(StatisticsType(qkv.dtype()), {s.batch, s.heads, s.tokens});
    AttentionForward(context, s, qkv, DropoutOf(c), out, lse);
    return std::vector<Array>{out, lse};
  });
}

/// Gradient of sum(dout * out) with respect to qkv.
Array Backward(const Case& c, const Array& qkv, const Array& dout) {
  const auto forward = Forward(c, qkv);
  return OnAnyThreads([&](const KernelContext& context) {
    Array dqkv(qkv.dtype(), qkv.shape());
    AttentionBackward(context, c.shape, dout, qkv, forward[0], forward[1], DropoutOf(c), dqkv);
    return std::vector<Array>{dqkv};
  })[0];
}

TEST_CASE("attention forward agrees with the formula in every dtype") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, c.dropout, NameOf(p.dtype));
      const Array qkv = Array::Random(p.dtype, QkvShape(c.shape), 1);
      const auto want = Reference(c, qkv.values());
      const auto got = Forward(c, qkv);
      CheckClose("out", got[0], want.out, 2 * p.tolerance);
      CheckClose("log_sum_exp", got[1], want.log_sum_exp, p.dtype == DType::f64 ? 1e-13 : 2e-6);
    }
}

TEST_CASE("attention backward in f64 agrees with central differences") {
  for (const Case& c : {Case{{1, 5, 2, 1, 4}, 0}, Case{{2, 6, 4, 2, 3}, 0.25f}, Case{{1, 67, 2, 1, 2}, 0.1f}}) {
    CAPTURE(c.shape.tokens, c.dropout);
    const Array qkv = Array::Random(DType::f64, QkvShape(c.shape), 2);
    const Array dout = Array::Random(DType::f64, {c.shape.batch, c.shape.tokens, c.shape.heads * c.shape.head_size}, 3);
    const Values want =
        CentralDifferences(qkv.values(), [&](const Values& x) { return Dot(Reference(c, x).out, dout.values()); });
    CheckClose("dqkv", Backward(c, qkv, dout), want, kDifferenceTolerance);
  }
}

TEST_CASE("attention backward in every dtype agrees with f64") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, c.dropout, NameOf(p.dtype));
      const Array qkv = Array::Random(p.dtype, QkvShape(c.shape), 4);
      const Array dout = Array::Random(p.dtype, {c.shape.batch, c.shape.tokens, c.shape.heads * c.shape.head_size}, 5);
      const Array want = Backward(c, qkv.To(DType::f64), dout.To(DType::f64));
      CheckClose("dqkv", Backward(c, qkv, dout), want.values(), 8 * p.tolerance);
    }
}

TEST_CASE("attention survives large scores") {
  const Case c{{1, 66, 1, 1, 16}, 0};
  const Array qkv = Array::Random(DType::f32, QkvShape(c.shape), 6, 20);  // scores in the hundreds
  const auto got = Forward(c, qkv);
  const auto f64 = Forward(c, qkv.To(DType::f64));
  CheckClose("out", got[0], f64[0].values(), 1e-3);
  CheckClose("log_sum_exp", got[1], f64[1].values(), 1e-6);
}

TEST_CASE("attention dropout is indexed by global sample") {
  Case c{{2, 9, 2, 1, 16}, 0.5f};
  const Array qkv = Array::Random(DType::f32, QkvShape(c.shape), 7);
  const auto both = Forward(c, qkv);
  Array second(DType::f32, {1, 9, 2 * 16}), lse(DType::f32, {1, 2, 9});
  AttentionShape one = c.shape;
  one.batch = 1;
  AttentionDropout dropout = DropoutOf(c);
  dropout.first_sample += 1;
  AttentionForward({1}, one, qkv.tensor().Flat(9 * 4 * 16, 9 * 4 * 16), dropout, second, lse);
  for (size_t i = 0; i < second.size(); ++i) REQUIRE(second[i] == both[0][second.size() + i]);
}

TEST_CASE("attention refuses tensors that do not fit") {
  const AttentionShape shape{1, 4, 2, 1, 8};
  Array qkv(DType::f32, {1, 4, 4, 8}), out(DType::f32, {1, 4, 16}), lse(DType::f32, {1, 2, 4});
  CHECK_THROWS_AS(AttentionForward({}, {1, 4, 3, 2, 8}, qkv, {}, out, lse), std::invalid_argument);
  CHECK_THROWS_AS(AttentionForward({}, {1, 5, 2, 1, 8}, qkv, {}, out, lse), std::invalid_argument);
  CHECK_THROWS_AS(AttentionForward({}, shape, qkv, {1.0f, {}, 0}, out, lse), std::invalid_argument);
  Tensor elsewhere = qkv;
  elsewhere.device.kind = DeviceKind::cuda;
  CHECK_THROWS_AS(AttentionForward({}, shape, elsewhere, {}, out, lse), std::invalid_argument);
  CHECK(AttentionScratchBytes(shape, DType::f32, 2) == 2 * AttentionScratchBytes(shape, DType::f32, 1));
}

}  // namespace
}  // namespace ds::test
