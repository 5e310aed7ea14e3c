#include <cmath>
#include <utility>

#include "runtime/data/dataset.h"

#include "runtime/base/error.h"
#include "runtime/data/prepare.h"
#include "test/unit/data/compress.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

std::vector<int32_t> Sample(const Dataset& data, int64_t index, int64_t length) {
  std::vector<int32_t> tokens(static_cast<size_t>(length) + 1, -7);
  data.Read(index, tokens.data());
  return tokens;
}

/// All tokens that the samples cover, the shared ones once.
std::vector<int32_t> Stream(const Dataset& data, int64_t length) {
  std::vector<int32_t> stream;
  for (int64_t i = 0; i < data.samples(); ++i) {
    std::vector<int32_t> sample = Sample(data, i, length);
    if (i > 0) REQUIRE(sample[0] == stream.back());
    stream.insert(stream.end(), sample.begin() + (i > 0), sample.end());
  }
  return stream;
}

void Prepare(const std::vector<std::string>& inputs, const fs::path& output, int64_t shard_tokens = 0) {
  PrepareOptions options;
  options.inputs = inputs;
  options.output = output;
  options.shard_tokens = shard_tokens;
  PrepareTokens(options);
}

std::string OpenError(const std::vector<std::string>& paths, int64_t length = 4, int64_t vocabulary = 257) {
  return MessageOf<UsageError>([&] { OpenDataset(paths, "bytes", length, vocabulary); });
}

}  // namespace

TEST_CASE("samples overlap by one token and skip none") {
  TempFolder folder;
  const fs::path path = folder.Write("a.txt", "abcdefghij");  // and the end of the document: 11 tokens
  auto data = OpenDataset({path}, "bytes", 5, 257);
  REQUIRE(data->samples() == 2);
  CHECK(Sample(*data, 0, 5) == std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 'f'});
  CHECK(Sample(*data, 1, 5) == std::vector<int32_t>{'f', 'g', 'h', 'i', 'j', 256});
  CHECK_THROWS_AS(Sample(*data, 2, 5), RuntimeError);
  CHECK_THROWS_AS(Sample(*data, -1, 5), RuntimeError);
  CHECK(OpenDataset({path}, "bytes", 6, 257)->samples() == 1);
}

TEST_CASE("text, JSON lines, token files and shards of the same documents are the same stream") {
  TempFolder folder;
  folder.Write("texts/1.txt", "first \xc3\xa9\n");
  folder.Write("texts/2.txt", "second");
  folder.Write("texts/3.txt", "");
  folder.Write("texts/4.txt", "the third");
  folder.Write("texts/notes.md", "not looked at");
  folder.Write("lines.jsonl",
               "{\"text\": \"first \\u00e9\\n\", \"id\": 1}\n\n{\"text\": \"second\"}\r\n{\"text\":\"\"}\n{\"text\": "
               "\"the third\"}");
  const std::string texts = folder / "texts";
  Prepare({texts}, folder / "whole.tok");
  Prepare({folder / "lines.jsonl"}, folder / "parts.tok", 4);
  const auto expected = Stream(*OpenDataset({texts}, "bytes", 3, 300), 3);
  REQUIRE(expected.size() == 25);
  folder.Write("lines.jsonl.gz", test::Gzip(ReadFile(folder / "lines.jsonl")));
  folder.Write("lines.ndjson.zst", test::Zstd(ReadFile(folder / "lines.jsonl")));
  for (const char* name : {"lines.jsonl", "lines.jsonl.gz", "lines.ndjson.zst", "whole.tok", "parts.tok"}) {
    CAPTURE(name);
    CHECK(Stream(*OpenDataset({folder / name}, "bytes", 3, 300), 3) == expected);
  }
  CHECK(Stream(*OpenDataset({folder / "texts/1.txt", folder / "texts/2.txt", folder / "texts/4.txt"}, "bytes", 3, 300),
               3) == expected);
  CHECK(OpenDataset({folder / "parts-00001-of-00007.tok"}, "bytes", 3, 300)->samples() == 1);
  CHECK(OpenDataset({texts}, "bytes", 3, 300)->vocabulary() == 300);
}

TEST_CASE("what cannot be opened is named") {
  TempFolder folder;
  const std::string text = folder.Write("a.txt", "abc");
  CHECK(Contains(OpenError({folder / "missing.txt"}), "missing.txt does not exist"));
  CHECK(Contains(OpenError({"/dev/zero"}), "/dev/zero is not a regular file"));  // it has no end
  CHECK(Contains(OpenError({folder / "missing.tok"}), "missing.tok does not exist"));
  CHECK(Contains(OpenError({}), "data.train"));
  CHECK(Contains(OpenError({text}), "4 tokens; one sample needs 5"));
  CHECK(Contains(OpenError({text}, 2, 256), "model.vocabulary"));
  CHECK(Contains(MessageOf<UsageError>([&] { OpenDataset({text}, "gpt2.json", 2, 257); }), "gpt2.json"));
  fs::create_directory(folder / "empty");
  CHECK(Contains(OpenError({folder / "empty"}), "holds no data"));
  Prepare({text}, folder / "b.tok");
  CHECK(Contains(OpenError({folder.path()}), "token files and texts"));
}

TEST_CASE("JSON lines that are wrong are named by file, line and column") {
  TempFolder folder;
  const std::string good = "{\"text\": \"fine\"}\n";
  auto error = [&](const std::string& line) {
    return OpenError({folder.Write("a.jsonl", good + good + line + "\n" + good)});
  };
  const std::string place = (folder / "a.jsonl").string() + ":3";
  CHECK(Contains(error("{\"text\": }"), place + ":10: "));
  CHECK(Contains(error("{\"body\": \"x\", \"id\": 3}"), place + ": no field `text`; it has body, id"));
  CHECK(Contains(error("{\"text\": 3}"), place + ": field `text` is not a string"));
  CHECK(Contains(error("{\"text\": null}"), place + ": field `text` is not a string"));
  CHECK(Contains(error("[1]"), place + ": not an object"));
  CHECK(Contains(error("{\"text\": \"cut"), place + ":"));
}

TEST_CASE("a damaged token file is refused when it is opened") {
  TempFolder folder;
  folder.Write("a.txt", "abcdefghij");
  Prepare({folder / "a.txt"}, folder / "a.tok");
  std::string bytes = ReadFile(folder / "a.tok");
  bytes[130] ^= 1;
  test::Overwrite(folder / "a.tok", bytes);
  CHECK(Contains(OpenError({folder / "a.tok"}), "a.tok: it is damaged"));
}

TEST_CASE("a split by fraction is by document, stable, and loses none") {
  TempFolder folder;
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += "{\"text\": \"document " + std::to_string(i) + "\"}\n";
  lines += "{\"text\": \"document 7\"}\n";
  folder.Write("a.jsonl", lines);
  PrepareOptions options;
  options.inputs = {folder / "a.jsonl"};
  options.output = folder / "a.tok";
  options.validation_fraction = 0.25;
  const PrepareResult result = PrepareTokens(options);
  REQUIRE(result.sets.size() == 2);
  CHECK(result.sets[0].files[0] == folder / "a-train.tok");
  CHECK(result.sets[1].files[0] == folder / "a-validation.tok");
  CHECK(result.sets[0].documents + result.sets[1].documents == 401);
  CHECK(std::abs(result.sets[1].documents - 100) < 40);

  auto texts = [&](const std::string& name) {
    std::multiset<std::string> found;
    std::string text;
    for (int32_t token : Stream(*OpenDataset({folder / name}, "bytes", 1, 257), 1)) {
      if (token < 256) text += static_cast<char>(token);
      if (token == 256) found.insert(std::exchange(text, ""));
    }
    return found;
  };
  const auto train = texts("a-train.tok"), validation = texts("a-validation.tok");
  for (const std::string& text : validation) CHECK(train.count(text) == 0);
  CHECK(train.count("document 7") + validation.count("document 7") == 2);

  options.output = folder / "b.tok";
  folder.Write("b.jsonl", "{\"text\": \"only one\"}\n");
  options.inputs = {folder / "b.jsonl"};
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "split the text yourself"));
  CHECK(!fs::exists(folder / "b-train.tok"));
}

TEST_CASE("options that make no sense are refused") {
  TempFolder folder;
  folder.Write("a.txt", "abc");
  PrepareOptions options;
  options.inputs = {folder / "a.txt"};
  options.output = folder / "a";
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "must end in .tok"));
  options.output = folder / "a.tok";
  options.validation_fraction = 1;
  CHECK_THROWS_AS(PrepareTokens(options), UsageError);
  options.validation_fraction = 0;
  options.tokenizer = "words";
  CHECK_THROWS_AS(PrepareTokens(options), UsageError);
  options.tokenizer = "bytes";
  PrepareTokens(options);
  options.inputs = {folder / "a.tok"};
  options.output = folder / "b.tok";
  CHECK(Contains(MessageOf<UsageError>([&] { PrepareTokens(options); }), "token file already"));
}

}  // namespace ds
