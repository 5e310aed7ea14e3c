// Cached attention: against the plain fp64 formula in every dtype; the same bits however the tokens come.
#include "kernels/cached_attention.h"

#include "kernels/attention.h"
#include "test/unit/kernels/reference.h"
#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  int64_t tokens, heads, kv_heads, head_size;
};

// Group sizes 1, 2, 3, 4; head sizes with and without a rest after whole lanes.
const Case kCases[] = {{1, 1, 1, 16}, {9, 2, 1, 16}, {40, 3, 1, 24}, {33, 4, 2, 7}, {70, 4, 4, 64}};

/// What the kernel writes: the rows' results, and the caches.
struct Result {
  Array out, keys, values;
  std::vector<Array> arrays() const { return {out, keys, values}; }
};

/// Attends over qkv [tokens, slots, size] in pieces: `rows(position)` tokens at a time.
template <class Rows>
Result Run(const KernelContext& context, const Case& c, const Array& qkv, int64_t capacity, const Rows& rows) {
  const DType dtype = qkv.dtype();
  Result r{Array(dtype, {c.tokens, c.heads * c.head_size}), Array(dtype, {c.kv_heads, capacity, c.head_size}),
           Array(dtype, {c.kv_heads, capacity, c.head_size})};
  const int64_t width = (c.heads + 2 * c.kv_heads) * c.head_size, out_width = c.heads * c.head_size;
  for (int64_t at = 0; at < c.tokens;) {
    const int64_t count = std::min(c.tokens - at, static_cast<int64_t>(rows(at)));
    CachedAttention(context, {count, at, capacity, c.heads, c.kv_heads, c.head_size},
                    qkv.tensor().Flat(at * width, count * width), r.keys, r.values,
                    r.out.tensor().Flat(at * out_width, count * out_width));
    at += count;
  }
  return r;
}

Array Qkv(const Case& c, DType dtype, uint32_t seed, double stddev = 1) {
  return Array::Random(dtype, {c.tokens, c.heads + 2 * c.kv_heads, c.head_size}, seed, stddev);
}

TEST_CASE("cached attention agrees with the formula in every dtype") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.tokens, c.heads, c.kv_heads, c.head_size, NameOf(p.dtype));
      const Array qkv = Qkv(c, p.dtype, 1);
      const auto want = reference::Attention(1, static_cast<size_t>(c.tokens), static_cast<size_t>(c.heads),
                                             static_cast<size_t>(c.kv_heads), static_cast<size_t>(c.head_size),
                                             qkv.values(), [](uint64_t) { return 1.0; });
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        return Run(context, c, qkv, c.tokens + 3, [&](int64_t) { return c.tokens; }).arrays();
      });
      CheckClose("out", got[0], want.out, 2 * p.tolerance);
    }
}

TEST_CASE("cached attention gives a row the same bits however its tokens came") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.tokens, c.heads, c.kv_heads, c.head_size, NameOf(p.dtype));
      const Array qkv = Qkv(c, p.dtype, 2);
      const Result whole = Run({2}, c, qkv, c.tokens, [&](int64_t) { return c.tokens; });
      const Result single = Run({1}, c, qkv, c.tokens, [](int64_t) { return 1; });
      const Result pieces = Run({3}, c, qkv, c.tokens, [](int64_t at) { return at % 5 + 1; });
      CHECK(single.out == whole.out);
      CHECK(pieces.out == whole.out);
      CHECK(single.keys == whole.keys);
      CHECK(single.values == whole.values);
    }
}

TEST_CASE("cached attention keeps keys and values where they belong, and nothing else") {
  const Case c{5, 4, 2, 8};
  const Array qkv = Qkv(c, DType::f32, 3);
  const Result r = Run({1}, c, qkv, 9, [](int64_t) { return 2; });
  for (int64_t kv = 0; kv < 2; ++kv)
    for (int64_t position = 0; position < 9; ++position)
      for (int64_t d = 0; d < 8; ++d) {
        const size_t at = static_cast<size_t>((kv * 9 + position) * 8 + d);
        if (position >= 5) {
          CHECK(std::isnan(r.keys[at]));
          CHECK(std::isnan(r.values[at]));
          continue;
        }
        CHECK(r.keys[at] == qkv[static_cast<size_t>((position * 8 + 4 + kv) * 8 + d)]);
        CHECK(r.values[at] == qkv[static_cast<size_t>((position * 8 + 6 + kv) * 8 + d)]);
      }
  CHECK(r.keys.Intact());
  CHECK(r.values.Intact());
}

TEST_CASE("cached attention agrees with training's, and survives large scores") {
  const Case c{66, 4, 2, 16};
  const Array qkv = Qkv(c, DType::f32, 4, 8);
  Array out(DType::f32, {1, c.tokens, c.heads * c.head_size}), lse(DType::f32, {1, c.heads, c.tokens});
  AttentionForward({1}, {1, c.tokens, c.heads, c.kv_heads, c.head_size}, qkv, {}, out, lse);
  CheckClose("out", Run({1}, c, qkv, c.tokens, [](int64_t) { return 7; }).out, out.values(), 1e-4);
}

TEST_CASE("cached attention refuses tensors that do not fit") {
  Array qkv(DType::f32, {2, 4, 8}), keys(DType::f32, {1, 6, 8}), values(DType::f32, {1, 6, 8}),
      out(DType::f32, {2, 16});
  const CachedAttentionShape shape{2, 4, 6, 2, 1, 8};
  CachedAttentionShape beyond = shape, uneven = shape, smaller = shape;
  beyond.first = 5, uneven.heads = 3, uneven.kv_heads = 2, smaller.capacity = 7;
  for (const CachedAttentionShape& wrong : {beyond, uneven, smaller})
    CHECK_THROWS_AS(CachedAttention({}, wrong, qkv, keys, values, out), std::invalid_argument);
  Array half(DType::bf16, {1, 6, 8});
  CHECK_THROWS_AS(CachedAttention({}, shape, qkv, half, values, out), std::invalid_argument);
  CHECK_THROWS_AS(CachedAttention({}, shape, qkv, keys, Tensor(), out), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
