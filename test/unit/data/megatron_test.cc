// Promise: Megatron-LM's datasets are read as they are, and each malformed field is named.
#include "runtime/data/megatron.h"

#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/dataset.h"
#include "runtime/data/prepare.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

/// The pair that test/data/make_megatron.py wrote.
const std::string kIndex = std::string(DS_SOURCE_DIR) + "/test/data/megatron_small.idx";
const std::vector<int32_t> kIds{5, 6, 7, 9, 300, 301, 302, 9, 65535};

struct Written {
  std::vector<int32_t> tokens;
  std::vector<int64_t> documents;
  TokenFileInfo info;
};

Written Read(const fs::path& path) {
  const TokenFile file(path);
  file.Verify();
  Written written{std::vector<int32_t>(static_cast<size_t>(file.info().tokens), -7), {}, file.info()};
  file.Read(0, file.info().tokens, written.tokens.data());
  for (int64_t i = 0; i < file.info().documents; ++i) written.documents.push_back(file.Document(i));
  return written;
}

template <class T>
void Put(std::string& bytes, T value, size_t at = std::string::npos) {
  if (at == std::string::npos) bytes.resize((at = bytes.size()) + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// A pair of one sequence a document.
template <class T>
fs::path WritePair(const TempFolder& folder, uint8_t dtype, const std::vector<std::vector<T>>& documents) {
  std::string ids, sizes, pointers, boundaries;
  int64_t count = 0;
  for (const auto& document : documents) {
    Put(sizes, static_cast<int32_t>(document.size()));
    Put(pointers, static_cast<int64_t>(ids.size()));
    Put(boundaries, count++);
    for (T id : document) Put(ids, id);
  }
  Put(boundaries, count);
  std::string index("MMIDIDX\0\0", 9);
  Put(index, uint64_t{1});
  Put(index, dtype);
  Put(index, static_cast<uint64_t>(count));
  Put(index, static_cast<uint64_t>(count + 1));
  folder.Write("m.bin", ids);
  return folder.Write("m.idx", index + sizes + pointers + boundaries);
}

}  // namespace

TEST_CASE("a dataset of Megatron-LM is read as its documents") {
  const MegatronData data(kIndex);
  CHECK(data.index().documents() == 4);
  CHECK(data.index().sequences() == 5);
  REQUIRE(data.index().tokens() == 9);
  CHECK(std::string(data.index().dtype()) == "uint16");
  std::vector<int32_t> ids(9, -7);
  data.Read(0, 9, 65536, ids.data());
  CHECK(ids == kIds);
  std::vector<int64_t> begins;
  for (int64_t i = 0; i <= 4; ++i) begins.push_back(data.index().DocumentBegin(i));
  CHECK(begins == std::vector<int64_t>{0, 4, 8, 8, 9});
  CHECK_THROWS_AS(data.Read(3, 7, 65536, ids.data()), RuntimeError);
  CHECK(Contains(MessageOf<RuntimeError>([&] { data.Read(0, 9, 65535, ids.data()); }),
                 "megatron_small.bin: token 65535 at position 8 is not in the vocabulary"));
}

TEST_CASE("ids of Megatron-LM become token files as they are, and train directly") {
  TempFolder folder;
  PrepareOptions options;
  options.inputs = {kIndex};
  options.output = folder / "a.tok";
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "say --vocabulary N"));
  options.vocabulary = 70000;
  CHECK(PrepareTokens(options).empty_documents == 1);
  Written written = Read(options.output);
  CHECK(written.tokens == kIds);
  CHECK(written.documents == std::vector<int64_t>{0, 4, 8});
  CHECK(written.info.tokenizer == "ids");
  CHECK(written.info.vocabulary == 70000);

  options.output = folder / "b.tok";
  options.inputs[0].replace(options.inputs[0].size() - 3, 3, "bin");
  options.end_of_document = 9;  // where it is missing alone
  PrepareTokens(options);
  written = Read(options.output);
  CHECK(written.tokens == std::vector<int32_t>{5, 6, 7, 9, 300, 301, 302, 9, 65535, 9});
  CHECK(written.documents == std::vector<int64_t>{0, 4, 8});

  options.output = folder / "c.tok";
  options.vocabulary = 65535;
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "token 65535 at position 8"));
  options.vocabulary = 9;
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "--end-of-document 9 is not in"));
  options.vocabulary = 0;
  options.end_of_document.reset();
  options.tokenizer = "bytes";
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "is not in the vocabulary of 257"));

  for (const std::string& name : {kIndex, (folder / "a.tok").string()}) {
    CAPTURE(name);
    const auto data = OpenDataset({name}, "bytes", 4, 70000);
    REQUIRE(data->samples() == 2);
    std::vector<int32_t> sample(5, -7);
    data->Read(1, sample.data());
    CHECK(sample == std::vector<int32_t>(kIds.begin() + 4, kIds.end()));
    const std::string error = MessageOf<UsageError>([&] { data->end_of_document(); });
    CHECK(Contains(error, name + " has ids of a tokenizer that is not known"));
    CHECK(Contains(error, "ds-convert data --tokenizer"));
  }
  CHECK(Contains(MessageOf<UsageError>([&] { OpenDataset({folder / "a.tok"}, "bytes", 4, 300); }), "model.vocabulary"));
  int32_t sample[5];
  CHECK_THROWS_AS(OpenDataset({kIndex}, "bytes", 4, 300)->Read(1, sample), RuntimeError);
  CHECK(Contains(MessageOf<UsageError>([&] { OpenDataset({folder / "no.idx"}, "bytes", 4, 300); }),
                 "no.idx does not exist; Megatron-LM's data are two files"));
}

TEST_CASE("every integer dtype is read, negative ids are not") {
  TempFolder folder;
  const auto ids = [&](const fs::path& index) {
    const MegatronData data(index);
    std::vector<int32_t> out(static_cast<size_t>(data.index().tokens()), -7);
    data.Read(0, data.index().tokens(), 100, out.data());
    return out;
  };
  const std::vector<int32_t> expected{1, 2, 99};
  CHECK(ids(WritePair<uint8_t>(folder, 1, {{1, 2}, {99}})) == expected);
  CHECK(ids(WritePair<int8_t>(folder, 2, {{1, 2}, {99}})) == expected);
  CHECK(ids(WritePair<int16_t>(folder, 3, {{1, 2}, {99}})) == expected);
  CHECK(ids(WritePair<int32_t>(folder, 4, {{1, 2}, {99}})) == expected);
  CHECK(ids(WritePair<int64_t>(folder, 5, {{1, 2}, {99}})) == expected);
  CHECK(ids(WritePair<uint16_t>(folder, 8, {{1, 2}, {99}})) == expected);
  CHECK_THROWS_AS(ids(WritePair<int32_t>(folder, 4, {{1, -1}})), RuntimeError);
  CHECK_THROWS_AS(ids(WritePair<int64_t>(folder, 5, {{(int64_t{1} << 32) + 1}})), RuntimeError);
}

TEST_CASE("long documents of ids are cut into parts and put together again") {
  TempFolder folder;
  std::vector<int32_t> all, documents[3];
  for (int32_t i = 0; i < 700000; ++i) documents[i < 3 ? 0 : i < 600000 ? 1 : 2].push_back(i % 5000);
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  PrepareOptions options;
  options.inputs = {WritePair<int32_t>(folder, 4, {documents[0], documents[1], documents[2]})};
  options.output = folder / "a.tok";
  options.vocabulary = 5000;
  options.piece_bytes = 1;
  int calls = 0;
  options.progress = [&](const PrepareProgress&) {
    if (++calls == 2) throw RuntimeError("stop");
  };
  CHECK_THROWS_AS(PrepareTokens(options), RuntimeError);  // in the middle of a document
  options.progress = nullptr;
  PrepareTokens(options);
  const Written written = Read(options.output);
  CHECK(written.documents == std::vector<int64_t>{0, 3, 600000});
  CHECK(written.tokens == all);
}

TEST_CASE("each malformed field of an index is named") {
  const std::string whole = ReadFile(kIndex);
  REQUIRE(whole.size() == 34 + 5 * 12 + 5 * 8);
  const auto error = [](const std::string& bytes) {
    return MessageOf<RuntimeError>([&] { MegatronIndex(bytes, "m.idx"); });
  };
  const size_t sizes = 34, pointers = sizes + 5 * 4, documents = pointers + 5 * 8;
  struct Case {
    size_t at;
    int bytes;
    int64_t value;
    const char* message;
  };
  const Case cases[] = {
      {0, 1, 'X', "magic"},
      {8, 1, 1, "magic"},
      {9, 8, 2, "its version is 2"},
      {17, 1, 0, "dtype code 0"},
      {17, 1, 9, "dtype code 9"},
      {17, 1, 6, "float64"},
      {17, 1, 7, "float32"},
      {18, 8, 6, "its counts (6 sequences, 5 document boundaries) make"},
      {18, 8, -1, "sequence count 18446744073709551615 is more"},
      {18, 8, int64_t{1} << 61, "sequence count 2305843009213693952 is more"},
      {26, 8, 4, "something was appended"},
      {26, 8, 0, "its document count is 0"},
      {26, 8, int64_t{1} << 60, "document count 1152921504606846976 is more"},
      {sizes, 4, -1, "sequence 0 has a size of -1"},
      {sizes + 4, 4, 3, "sequence 2 points to byte 12, the sequences before it end at byte 14"},
      {pointers, 8, 2, "sequence 0 points to byte 2"},
      {pointers + 8, 8, -8, "sequence 1 points to byte -8"},
      {documents, 8, 1, "document 0 begins at sequence 1"},
      {documents + 8, 8, 4, "document boundary 2 is sequence 3, out of [4, 5]"},
      {documents + 16, 8, 6, "document boundary 2 is sequence 6"},
      {documents + 32, 8, 4, "its documents end at sequence 4 of 5"},
  };
  for (const Case& test : cases) {
    CAPTURE(test.at, test.value);
    std::string bytes = whole;
    std::memcpy(bytes.data() + test.at, &test.value, static_cast<size_t>(test.bytes));
    const std::string message = error(bytes);
    CHECK(message.starts_with("m.idx: "));
    CHECK(Contains(message, test.message));
  }
  for (size_t size = 0; size < whole.size(); ++size) CHECK(Contains(error(whole.substr(0, size)), "m.idx: it"));
  CHECK(Contains(error(whole + "x"), "something was appended"));
  CHECK(Contains(error(whole + std::string(5, '\0')), "mode for each sequence"));

  TempFolder folder;
  fs::copy_file(kIndex, folder / "m.idx");
  for (const size_t size : {size_t{0}, size_t{17}, size_t{19}}) {
    folder.Write("m.bin", std::string(size, 'x'));
    CHECK(Contains(MessageOf<UsageError>([&] { OpenDataset({folder / "m.idx"}, "bytes", 2, 300); }),
                   "m.bin: it has " + std::to_string(size) + " bytes"));
  }
}

}  // namespace ds
