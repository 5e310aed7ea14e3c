// Embeddings on the GPU: the CPU's bits, whatever tokens come how often.
#include "kernels/embedding.h"

#include "kernels/workspace.h"
#include "test/unit/gpu/gpu.h"

namespace ds::test {
namespace {

struct Case {
  int64_t batch, tokens, vocabulary, columns;
  const char* ids;
};
const Case kCases[] = {
    {1, 1, 1, 1, "random"},       {2, 3, 5, 7, "random"},      {3, 17, 256, 64, "random"},
    {2, 1024, 300, 1000, "zipf"}, {4, 515, 50257, 48, "zipf"}, {1, 2049, 70'000, 8, "random"},
    {5, 1000, 1000, 16, "one"},   {2, 2048, 255, 24, "two"},   {0, 4, 10, 8, "random"},
};

Array Ids(const Case& c) {
  std::mt19937 generator(7);
  std::vector<int32_t> ids(static_cast<size_t>(c.batch * c.tokens));
  const std::string kind = c.ids;
  for (int32_t& id : ids) {
    const double u = (static_cast<double>(generator()) + 0.5) / 4294967296.0;
    if (kind == "random") id = static_cast<int32_t>(u * static_cast<double>(c.vocabulary));
    if (kind == "zipf") id = static_cast<int32_t>(std::pow(static_cast<double>(c.vocabulary), u)) - 1;
    if (kind == "one") id = static_cast<int32_t>(c.vocabulary - 1);
    if (kind == "two") id = u < 0.9 ? 0 : 254;
  }
  return Array::OfInts({c.batch, c.tokens}, ids);
}

/// Something to add to.
void Fill(Array& a) {
  for (size_t i = 0; i < a.size(); ++i) a.Set(i, static_cast<double>(i % 101) / 7 - 5);
}

/// body(case, dtype, offset).
template <class Body>
void ForEachCase(const Body& body) {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions)
      for (int64_t offset : {0, 1}) {
        CAPTURE(c.batch, c.tokens, c.vocabulary, c.columns, c.ids, NameOf(p.dtype), offset);
        if (LeftOut(c.vocabulary * c.columns)) continue;
        if (c.vocabulary * c.columns > 1'000'000 && (offset || p.dtype == DType::f64)) continue;
        body(c, p.dtype, offset);
      }
}

TEST_CASE("GPU: embeddings are the CPU's, with positions and without") {
  const GpuContext context;
  ForEachCase([&](const Case& c, DType dtype, int64_t offset) {
    const Array ids = Ids(c), table = Array::Random(dtype, {c.vocabulary, c.columns}, 1),
                positions = Array::Random(dtype, {c.tokens + 1, c.columns}, 2);
    const Shape s{c.batch, c.tokens, c.columns};
    Array want(dtype, s);
    const GpuArray got(dtype, s, offset), gpu_ids(ids), gpu_table(table, offset), gpu_positions(positions, offset);
    EmbeddingForward({}, ids, table, {}, want);
    EmbeddingForward(context, gpu_ids, gpu_table, {}, got);
    CHECK(got.Host() == want);
    EmbeddingForward({}, ids, table, positions, want);
    EmbeddingForward(context, gpu_ids, gpu_table, gpu_positions, got);
    CHECK(got.Host() == want);
  });
}

TEST_CASE("GPU: gradients of tokens are summed in the CPU's order, added or not") {
  ForEachCase([&](const Case& c, DType dtype, int64_t offset) {
    const GpuContext context(EmbeddingBackwardWorkspaceBytes(c.batch * c.tokens));
    const DType sums = StatisticsType(dtype);
    const Array ids = Ids(c), dy = Array::Random(dtype, {c.batch, c.tokens, c.columns}, 1);
    const GpuArray gpu_ids(ids), gpu_dy(dy, offset);
    for (bool accumulate : {false, true}) {
      Array want(sums, {c.vocabulary, c.columns});
      if (accumulate) Fill(want);
      const GpuArray got(want, offset);
      EmbeddingBackwardTokens({}, ids, dy, want, accumulate);
      EmbeddingBackwardTokens(context, gpu_ids, gpu_dy, got, accumulate);
      CHECK(got.Host() == want);
    }
  });
}

TEST_CASE("GPU: gradients of positions are summed in the CPU's order, added or not") {
  const GpuContext context;
  ForEachCase([&](const Case& c, DType dtype, int64_t offset) {
    const DType sums = StatisticsType(dtype);
    const Array dy = Array::Random(dtype, {c.batch, c.tokens, c.columns}, 1);
    const GpuArray gpu_dy(dy, offset);
    for (bool accumulate : {false, true}) {
      Array want(sums, {c.tokens + 3, c.columns});
      if (accumulate) Fill(want);
      const GpuArray got(want, offset);
      EmbeddingBackwardPositions({}, dy, want, accumulate);
      EmbeddingBackwardPositions(context, gpu_dy, got, accumulate);
      CHECK(got.Host() == want);
    }
  });
}

TEST_CASE("GPU: ids outside the table give rows of NaN, and no gradient") {
  const std::vector<int32_t> ids{1, -1, 2, 3, INT32_MAX, INT32_MIN, 2};
  const GpuArray gpu_ids(Array::OfInts({1, 7}, ids));
  const GpuContext context(EmbeddingBackwardWorkspaceBytes(7));
  const Array table = Array::Random(DType::bf16, {3, 16}, 1), dy = Array::Random(DType::bf16, {1, 7, 16}, 2);
  const GpuArray y(DType::bf16, {1, 7, 16}), dtable(DType::f32, {3, 16});
  EmbeddingForward(context, gpu_ids, GpuArray(table), {}, y);
  EmbeddingBackwardTokens(context, gpu_ids, GpuArray(dy), dtable, false);
  const Array rows = y.Host(), gradient = dtable.Host();
  for (size_t i = 0; i < 7; ++i)
    for (size_t j = 0; j < 16; ++j) {
      const bool known = ids[i] >= 0 && ids[i] < 3;
      CAPTURE(i, j);
      CHECK((known ? rows[i * 16 + j] == table[static_cast<size_t>(ids[i]) * 16 + j] : std::isnan(rows[i * 16 + j])));
    }
  for (size_t j = 0; j < 16; ++j) {
    CHECK(gradient[j] == 0);
    CHECK(gradient[16 + j] == dy[j]);
    CHECK(gradient[32 + j] ==
          static_cast<double>(static_cast<float>(dy[2 * 16 + j]) + static_cast<float>(dy[6 * 16 + j])));
  }
}

}  // namespace
}  // namespace ds::test
