// Embeddings forward and backward, repeated ids, and ids outside the table.
#include "kernels/embedding.h"

#include "test/unit/kernels/support.h"

namespace ds::test {
namespace {

struct Case {
  int64_t batch, tokens, vocabulary, columns;
};
const Case kCases[] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {3, 37, 11, 65}, {2, 129, 1000, 130}};

size_t Z(int64_t n) { return static_cast<size_t>(n); }

std::vector<int32_t> Ids(const Case& c) {
  std::mt19937 generator(9);
  std::vector<int32_t> ids(Z(c.batch * c.tokens));
  for (int32_t& id : ids) id = static_cast<int32_t>(generator() % static_cast<uint32_t>(c.vocabulary));
  return ids;
}

TEST_CASE("embedding rows are looked up and positions added") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.tokens, c.columns, NameOf(p.dtype));
      const auto ids = Ids(c);
      const Array id_array = Array::OfInts({c.batch, c.tokens}, ids);
      const Array table = Array::Random(p.dtype, {c.vocabulary, c.columns}, 1);
      const Array positions = Array::Random(p.dtype, {c.tokens + 3, c.columns}, 2);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array with(p.dtype, {c.batch, c.tokens, c.columns}), without(p.dtype, {c.batch, c.tokens, c.columns});
        EmbeddingForward(context, id_array, table, positions, with);
        EmbeddingForward(context, id_array, table, {}, without);
        return std::vector<Array>{with, without};
      });
      Values with, without;
      for (size_t i = 0; i < ids.size(); ++i)
        for (size_t j = 0; j < Z(c.columns); ++j) {
          const double row = table[Z(ids[i]) * Z(c.columns) + j];
          without.push_back(row);
          with.push_back(row + positions[i % Z(c.tokens) * Z(c.columns) + j]);
        }
      CheckClose("y", got[0], with, p.tolerance);
      CHECK(got[1] == Array::Of(p.dtype, got[1].shape(), without));
    }
}

TEST_CASE("embedding gradients are summed by id and by position, in order") {
  for (const Case& c : kCases)
    for (const Precision& p : kPrecisions) {
      CAPTURE(c.tokens, c.columns, NameOf(p.dtype));
      const auto ids = Ids(c);
      const Array id_array = Array::OfInts({c.batch, c.tokens}, ids);
      const DType sums = StatisticsType(p.dtype);
      const Array dy = Array::Random(p.dtype, {c.batch, c.tokens, c.columns}, 3);
      const Array before = Array::Random(sums, {c.vocabulary, c.columns}, 4);
      const Array before_positions = Array::Random(sums, {c.tokens + 3, c.columns}, 5);
      const auto got = OnAnyThreads([&](const KernelContext& context) {
        Array table(sums, before.shape()), added = before;
        Array positions(sums, before_positions.shape()), added_positions = before_positions;
        EmbeddingBackwardTokens(context, id_array, dy, table, false);
        EmbeddingBackwardTokens(context, id_array, dy, added, true);
        EmbeddingBackwardPositions(context, dy, positions, false);
        EmbeddingBackwardPositions(context, dy, added_positions, true);
        return std::vector<Array>{table, added, positions, added_positions};
      });
      // The order is the contract: the same sums in the dtype of the sums give the same bits.
      const auto plus = [&](double a, double b) {
        return sums == DType::f64 ? a + b : static_cast<double>(static_cast<float>(a) + static_cast<float>(b));
      };
      Values want[4] = {Values(before.size(), 0), before.values(), Values(before_positions.size(), 0),
                        before_positions.values()};
      for (size_t i = 0; i < dy.size(); ++i) {
        const size_t token = i / Z(c.columns), column = i % Z(c.columns);
        const size_t row = Z(ids[token]) * Z(c.columns) + column;
        const size_t position = token % Z(c.tokens) * Z(c.columns) + column;
        for (int k : {0, 1}) want[k][row] = plus(want[k][row], dy[i]);
        for (int k : {2, 3}) want[k][position] = plus(want[k][position], dy[i]);
      }
      for (size_t k = 0; k < 4; ++k) {
        CAPTURE(k);
        CHECK(got[k] == Array::Of(sums, got[k].shape(), want[k]));
      }
    }
}

TEST_CASE("an id outside the table is an error that names it and its place") {
  for (int32_t bad : {-1, 6}) {
    const Array ids = Array::OfInts({2, 3}, {0, 1, 2, 3, bad, 5});
    Array table = Array::Random(DType::f32, {6, 4}, 1), y(DType::f32, {2, 3, 4});
    const Array before = table;
    std::string message;
    try {
      EmbeddingForward({}, ids, table, {}, y);
    } catch (const std::invalid_argument& e) {
      message = e.what();
    }
    CAPTURE(message);
    CHECK(message.find("id " + std::to_string(bad) + " of sample 1, token 1") != std::string::npos);
    CHECK_THROWS_AS(EmbeddingBackwardTokens({}, ids, y, table, false), std::invalid_argument);
    CHECK(table == before);
  }
}

TEST_CASE("embeddings refuse tensors that do not fit") {
  const Array ids = Array::OfInts({2, 3}, {0, 1, 2, 3, 4, 5});
  Array table(DType::f32, {6, 4}), y(DType::f32, {2, 3, 4}), positions(DType::f32, {2, 4}), narrow(DType::bf16, {6, 4});
  CHECK_THROWS_AS(EmbeddingForward({}, ids, table, positions, y), std::invalid_argument);
  CHECK_THROWS_AS(EmbeddingForward({}, ids, narrow, {}, y), std::invalid_argument);
  CHECK_THROWS_AS(EmbeddingForward({}, table, table, {}, y), std::invalid_argument);
  CHECK_THROWS_AS(EmbeddingBackwardTokens({}, ids, y, narrow, false), std::invalid_argument);
  CHECK_THROWS_AS(EmbeddingBackwardPositions({}, y, positions, false), std::invalid_argument);
}

}  // namespace
}  // namespace ds::test
