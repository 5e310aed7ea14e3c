// Where the documents of a sample begin, as attention within documents is told.
#include "runtime/data/first_keys.h"

#include <vector>

#include "runtime/data/dataset.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

constexpr int32_t kEnd = 256;

std::vector<int32_t> FirstKeysOf(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> first(tokens.size() + 1, -7);
  WriteFirstKeys(tokens.data(), static_cast<int64_t>(tokens.size()), kEnd, first.data());
  CHECK(first.back() == -7);
  first.pop_back();
  return first;
}

}  // namespace

TEST_CASE("a document begins behind the token that ends the one before, which belongs to that one") {
  CHECK(FirstKeysOf({1, 2, kEnd, 3, kEnd, 4, 5}) == std::vector<int32_t>{0, 0, 0, 3, 3, 5, 5});
}

TEST_CASE("a sample's first document begins with it, be it from its middle or its end alone") {
  CHECK(FirstKeysOf({1, 2, 3}) == std::vector<int32_t>{0, 0, 0});
  CHECK(FirstKeysOf({kEnd, 1, 2}) == std::vector<int32_t>{0, 1, 1});
  CHECK(FirstKeysOf({1, 2, kEnd}) == std::vector<int32_t>{0, 0, 0});
  CHECK(FirstKeysOf({}).empty());
}

TEST_CASE("empty documents are their ends alone") {
  CHECK(FirstKeysOf({kEnd, kEnd, kEnd, 1}) == std::vector<int32_t>{0, 1, 2, 3});
}

TEST_CASE("a dataset of texts knows what ends its documents") {
  test::TempFolder folder;
  const auto data =
      OpenDataset({folder.Write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"cde\"}\n")}, "bytes", 6, 257);
  REQUIRE(data->end_of_document() == kEnd);
  std::vector<int32_t> sample(7);
  data->Read(0, sample.data());
  sample.pop_back();
  CHECK(FirstKeysOf(sample) == std::vector<int32_t>{0, 0, 0, 3, 3, 3});
}

}  // namespace ds
