// Attention: forward against the plain fp64 formula, backward in fp64 against central differences of that formula and
// in the other dtypes against the fp64 kernel; dropout masks from the counter-based generator; documents of a sample
// that do not see each other.
#include "kernels/attention.h"

#include <algorithm>
#include <array>

#include "test/unit/kernels/first_keys.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  AttentionShape shape;
  float dropout;
  std::vector<int64_t> documents = {};  ///< of FirstKeys()
};

// Token counts around the block of 64 rows; group sizes 1, 2, 3, 4; head sizes 16..128 and an odd one.
const Case kCases[] = {
    {{1, 1, 1, 1, 16}, 0},   {{2, 7, 2, 1, 16}, 0.2f},   {{1, 64, 2, 2, 32}, 0},  {{1, 65, 3, 1, 64}, 0.1f},
    {{2, 131, 4, 2, 24}, 0}, {{1, 129, 4, 1, 80}, 0.3f}, {{1, 70, 1, 1, 128}, 0}, {{1, 200, 2, 1, 7}, 0.5f},
};

// Documents of one token, around the block of 64 rows and of more than one block; one that goes on into the next sample
// begins there anew.
const Case kPacked[] = {
    {{1, 1, 1, 1, 16}, 0, {0}},
    {{2, 7, 2, 1, 16}, 0.2f, {3, 4, 9}},
    {{1, 64, 2, 2, 32}, 0, {1, 63}},
    {{1, 130, 3, 1, 64}, 0.1f, {64, 65, 129}},
    {{2, 131, 4, 2, 24}, 0, {17, 100, 131, 200}},
    {{1, 200, 4, 1, 80}, 0.3f, {5, 135}},
    {{2, 70, 1, 1, 128}, 0, {69, 71}},
    {{1, 300, 2, 1, 7}, 0.5f, {70, 71, 72, 80, 215}},
    {{1, 90, 2, 1, 256}, 0, {31}},
};

std::vector<int32_t> FirstKeysOf(const Case& c) { return FirstKeys(c.shape.batch, c.shape.tokens, c.documents); }

/// A tensor over `first`, absent where it is empty.
Tensor FirstKeyTensor(const Case& c, std::vector<int32_t>& first) {
  return first.empty() ? Tensor() : Tensor::Of(first.data(), Shape{c.shape.batch, c.shape.tokens});
}

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
                              static_cast<size_t>(s.kv_heads), static_cast<size_t>(s.head_size), qkv, FactorOf(c),
                              FirstKeysOf(c));
}

/// {out, log_sum_exp}
std::vector<Array> Forward(const Case& c, const Array& qkv) {
  const auto& s = c.shape;
  std::vector<int32_t> first = FirstKeysOf(c);
  return OnAnyThreads([&](const KernelContext& context) {
    Array out(qkv.dtype(), {s.batch, s.tokens, s.heads * s.head_size});
    Array lse(StatisticsType(qkv.dtype()), {s.batch, s.heads, s.tokens});
    AttentionForward(context, s, qkv, DropoutOf(c), out, lse, FirstKeyTensor(c, first));
    return std::vector<Array>{out, lse};
  });
}

/// Gradient of sum(dout * out) with respect to qkv.
Array Backward(const Case& c, const Array& qkv, const Array& dout) {
  const auto forward = Forward(c, qkv);
  std::vector<int32_t> first = FirstKeysOf(c);
  return OnAnyThreads([&](const KernelContext& context) {
    Array dqkv(qkv.dtype(), qkv.shape());
    AttentionBackward(context, c.shape, dout, qkv, forward[0], forward[1], DropoutOf(c), dqkv,
                      FirstKeyTensor(c, first));
    return std::vector<Array>{dqkv};
  })[0];
}

/// Both tables.
std::vector<Case> AllCases() {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kPacked), std::end(kPacked));
  return cases;
}

TEST_CASE("attention forward agrees with the formula in every dtype") {
  for (const Case& c : AllCases())
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.documents, c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, c.dropout,
              NameOf(p.dtype));
      const Array qkv = Array::Random(p.dtype, QkvShape(c.shape), 1);
      const auto want = Reference(c, qkv.values());
      const auto got = Forward(c, qkv);
      CheckClose("out", got[0], want.out, 2 * p.tolerance);
      CheckClose("log_sum_exp", got[1], want.log_sum_exp, p.dtype == DType::f64 ? 1e-13 : 2e-6);
    }
}

TEST_CASE("attention backward in f64 agrees with central differences") {
  for (const Case& c : {Case{{1, 5, 2, 1, 4}, 0}, Case{{2, 6, 4, 2, 3}, 0.25f}, Case{{1, 67, 2, 1, 2}, 0.1f},
                        Case{{1, 5, 2, 1, 4}, 0, {2}}, Case{{2, 6, 4, 2, 3}, 0.25f, {1, 2, 9}},
                        Case{{1, 69, 2, 1, 2}, 0.1f, {3, 68}}}) {
    CAPTURE(c.documents, c.shape.tokens, c.dropout);
    const Array qkv = Array::Random(DType::f64, QkvShape(c.shape), 2);
    const Array dout = Array::Random(DType::f64, {c.shape.batch, c.shape.tokens, c.shape.heads * c.shape.head_size}, 3);
    const Values want =
        CentralDifferences(qkv.values(), [&](const Values& x) { return Dot(Reference(c, x).out, dout.values()); });
    CheckClose("dqkv", Backward(c, qkv, dout), want, kDifferenceTolerance);
  }
}

TEST_CASE("attention backward in every dtype agrees with f64") {
  for (const Case& c : AllCases())
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.documents, c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, c.dropout,
              NameOf(p.dtype));
      const Array qkv = Array::Random(p.dtype, QkvShape(c.shape), 4);
      const Array dout = Array::Random(p.dtype, {c.shape.batch, c.shape.tokens, c.shape.heads * c.shape.head_size}, 5);
      const Array want = Backward(c, qkv.To(DType::f64), dout.To(DType::f64));
      CheckClose("dqkv", Backward(c, qkv, dout), want.values(), 8 * p.tolerance);
    }
}

/// Tokens [begin, begin + count) of sample `b`, as a sample of their own.
Array Cut(const Array& of, int64_t b, int64_t begin, int64_t count, Shape shape) {
  const int64_t row = of.shape().numel() / of.shape()[0] / of.shape()[1];
  Array cut(of.dtype(), shape);
  for (int64_t i = 0; i < count * row; ++i)
    cut.Set(static_cast<size_t>(i), of[static_cast<size_t>((b * of.shape()[1] + begin) * row + i)]);
  return cut;
}

TEST_CASE("packed documents have the bits that each has alone") {
  for (Case c : kPacked)
    for (const Precision& p : kPrecisions) {
      c.dropout = 0;
      CAPTURE(c.documents, c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, NameOf(p.dtype));
      const AttentionShape& s = c.shape;
      const Shape out_shape{s.batch, s.tokens, s.heads * s.head_size};
      const Array qkv = Array::Random(p.dtype, QkvShape(s), 8), dout = Array::Random(p.dtype, out_shape, 9);
      const auto forward = Forward(c, qkv);
      const Array dqkv = Backward(c, qkv, dout);
      const std::vector<int32_t> first = FirstKeysOf(c);
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t begin = 0, end = 0; begin < s.tokens; begin = end) {
          for (end = begin + 1; end < s.tokens && first[static_cast<size_t>(b * s.tokens + end)] == begin;) ++end;
          CAPTURE(b, begin, end);
          Case alone{s, 0};
          alone.shape.batch = 1, alone.shape.tokens = end - begin;
          const Shape cut_out{1, end - begin, s.heads * s.head_size};
          const Array cut = Cut(qkv, b, begin, end - begin, QkvShape(alone.shape));
          const auto want = Forward(alone, cut);
          CHECK(Cut(forward[0], b, begin, end - begin, cut_out) == want[0]);
          for (int64_t h = 0; h < s.heads; ++h)
            for (int64_t t = begin; t < end; ++t)
              REQUIRE(forward[1][static_cast<size_t>((b * s.heads + h) * s.tokens + t)] ==
                      want[1][static_cast<size_t>(h * (end - begin) + t - begin)]);
          CHECK(Cut(dqkv, b, begin, end - begin, QkvShape(alone.shape)) ==
                Backward(alone, cut, Cut(dout, b, begin, end - begin, cut_out)));
        }
    }
}

TEST_CASE("first keys of 0 give the bits of no first keys") {
  for (Case c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.shape.tokens, c.shape.heads, c.shape.kv_heads, c.shape.head_size, c.dropout, NameOf(p.dtype));
      const Array qkv = Array::Random(p.dtype, QkvShape(c.shape), 8);
      const Array dout = Array::Random(p.dtype, {c.shape.batch, c.shape.tokens, c.shape.heads * c.shape.head_size}, 9);
      const auto want = Forward(c, qkv);
      const Array dwant = Backward(c, qkv, dout);
      c.documents = {0};
      CHECK(Forward(c, qkv) == want);
      CHECK(Backward(c, qkv, dout) == dwant);
    }
}

TEST_CASE("a query sees what its first key says, be it a document's or not") {
  const AttentionShape s{1, 150, 2, 1, 8};  // the last 20 tokens, and rows 100 to 109 themselves alone
  std::vector<int32_t> first;
  for (int32_t t = 0; t < 150; ++t)
    first.push_back(std::max(0, t < 100 ? t - 19 : t < 110 ? t : std::max(109, t - 19)));
  const Array qkv = Array::Random(DType::f64, QkvShape(s), 10);
  Array out(DType::f64, {1, 150, 16}), lse(DType::f64, {1, 2, 150});
  AttentionForward({2}, s, qkv, {}, out, lse, Tensor::Of(first.data(), Shape{1, 150}));
  const auto want = reference::Attention(
      1, 150, 2, 1, 8, qkv.values(), [](uint64_t) { return 1.0; }, first);
  CheckClose("out", out, want.out, 1e-13);
  CheckClose("log_sum_exp", lse, want.log_sum_exp, 1e-13);
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
  // First keys: of another shape or dtype, behind their token, falling, before the sample.
  const auto refused = [&](std::vector<int32_t> keys, const std::string& why) {
    const Tensor first = Tensor::Of(keys.data(), Shape{static_cast<int64_t>(keys.size())});
    CAPTURE(keys, why);
    for (bool backward : {false, true}) {
      std::string message;
      try {
        if (backward)
          AttentionBackward({}, shape, out, qkv, out, lse, {}, qkv, first);
        else
          AttentionForward({}, shape, qkv, {}, out, lse, first);
      } catch (const std::invalid_argument& error) {
        message = error.what();
      }
      CHECK(message.find(why) != std::string::npos);
    }
  };
  refused({0, 0, 0}, "first_key is i32 [3]");
  refused({0, 0, 3, 3}, "first_key of sample 0, token 2 is 3; it is at least 0 and at most 2");
  refused({0, 1, 0, 3}, "first_key of sample 0, token 2 is 0; it is at least 1");
  refused({-1, 0, 0, 0}, "first_key of sample 0, token 0 is -1");
  refused({1, 1, 1, 1}, "first_key of sample 0, token 0 is 1; it is at least 0 and at most 0");
  CHECK_THROWS_AS(AttentionForward({}, shape, qkv, {}, out, lse, Array(DType::f32, {1, 4})), std::invalid_argument);
  CHECK(AttentionScratchBytes(shape, DType::f32, 2) == 2 * AttentionScratchBytes(shape, DType::f32, 1));
}

}  // namespace
}  // namespace ds::test
