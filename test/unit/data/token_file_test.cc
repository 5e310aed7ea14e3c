#include "runtime/data/token_file.h"

#include <numeric>

#include "runtime/base/error.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;
namespace fs = std::filesystem;

std::vector<fs::path> WriteDocuments(const fs::path& path, const std::vector<std::vector<int32_t>>& documents,
                                     int64_t vocabulary, int64_t shard_tokens = 0, bool force = false) {
  TokenFileWriter writer(path, "bytes", vocabulary, shard_tokens);
  for (const auto& document : documents) {
    writer.BeginDocument();
    writer.Append(document);
  }
  writer.Commit(force);
  return writer.files();
}

std::vector<int32_t> Tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.info().tokens), -7);
  file.Read(0, file.info().tokens, tokens.data());
  return tokens;
}

std::vector<int64_t> Documents(const TokenFile& file) {
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < file.info().documents; ++i) begins.push_back(file.Document(i));
  return begins;
}

}  // namespace

TEST_CASE("tokens come back from a file, in two bytes and in four") {
  TempFolder folder;
  const int64_t vocabulary = GENERATE(257, 65536, 65537, 200000);
  CAPTURE(vocabulary);
  const int32_t last = static_cast<int32_t>(vocabulary - 1);
  WriteDocuments(folder / "a.tok", {{0, 1, last}, {last}, {5, 6}}, vocabulary);
  TokenFile file(folder / "a.tok");
  file.Verify();
  CHECK(Tokens(file) == std::vector<int32_t>{0, 1, last, last, 5, 6});
  CHECK(Documents(file) == std::vector<int64_t>{0, 3, 4});
  CHECK(file.info().token_bytes == (vocabulary <= 65536 ? 2u : 4u));
  CHECK(file.info().vocabulary == vocabulary);
  CHECK(file.info().tokenizer == "bytes");
  CHECK(folder.Names() == std::set<std::string>{"a.tok"});
}

TEST_CASE("the layout on disk is the documented one") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 256}, {3}}, 257);
  const std::string bytes = ReadFile(folder / "a.tok");
  REQUIRE(bytes.size() == 128 + 8 + 16);
  CHECK(bytes.substr(0, 8) == "DSTOKENS");
  CHECK(bytes.substr(8, 12) == std::string("\x04\x03\x02\x01\x01\0\0\0\x02\0\0\0", 12));
  CHECK(bytes.substr(32, 24) == std::string("\x01\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 24));
  CHECK(bytes.substr(128, 8) == std::string("\x01\0\0\x01\x03\0\0\0", 8));
  CHECK(bytes.substr(136) == std::string("\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 16));
}

TEST_CASE("any flipped bit, any missing or extra byte is an error that names the file") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3}, {4, 256}}, 257);
  const std::string whole = ReadFile(folder / "a.tok");
  const fs::path path = folder / "b.tok";
  auto check = [&] { return MessageOf<RuntimeError>([&] { TokenFile(path).Verify(); }); };
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int bit : {static_cast<int>(at % 8)}) {
      CAPTURE(at, bit);
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      test::Overwrite(path, bytes);
      const std::string message = check();
      CHECK(Contains(message, path.string()));
      if (at < 8) CHECK(Contains(message, "ds-convert data"));
      if (at >= 12 && at < 16) CHECK(Contains(message, "version"));
      if (at >= 16 && at < 128) CHECK(Contains(message, "header is damaged"));
      if (at >= 128) CHECK(Contains(message, "it is damaged: its checksum"));
    }
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    test::Overwrite(path, whole.substr(0, size));
    CHECK(Contains(check(), "cut short"));
  }
  test::Overwrite(path, whole + "x");
  CHECK(Contains(check(), "appended"));
  fs::remove(path);
  CHECK(Contains(check(), path.string()));
}

TEST_CASE("a token outside the vocabulary is found where it is read") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3, 4}}, 257);
  std::string bytes = ReadFile(folder / "a.tok");
  bytes[133] = '\x7f';
  test::Overwrite(folder / "a.tok", bytes);
  TokenFile file(folder / "a.tok");
  int32_t tokens[4];
  file.Read(0, 2, tokens);
  CHECK(Contains(MessageOf<RuntimeError>([&] { file.Read(0, 4, tokens); }), "not in its vocabulary"));
  CHECK_THROWS_AS(file.Read(3, 2, tokens), RuntimeError);
  CHECK_THROWS_AS(file.Read(-1, 2, tokens), RuntimeError);
}

TEST_CASE("shards hold exactly the tokens asked for, and documents go on across them") {
  TempFolder folder;
  std::vector<int32_t> document(10);
  std::iota(document.begin(), document.end(), 0);
  const auto files = WriteDocuments(folder / "a.tok", {document, {100, 101}, {102}}, 257, 4);
  REQUIRE(files.size() == 4);
  CHECK(files[3] == folder / "a-00003-of-00004.tok");
  CHECK(TokenFileSet(folder / "a.tok") == files);
  CHECK(Tokens(TokenFile(files[1])) == std::vector<int32_t>{4, 5, 6, 7});
  CHECK(Documents(TokenFile(files[1])).empty());
  CHECK(Documents(TokenFile(files[2])) == std::vector<int64_t>{2});
  CHECK(Documents(TokenFile(files[3])) == std::vector<int64_t>{0});
  CHECK(Tokens(TokenFile(files[3])) == std::vector<int32_t>{102});
  for (const fs::path& file : files) TokenFile(file).Verify();

  SECTION("a missing shard is an error") {
    fs::remove(files[1]);
    CHECK(Contains(MessageOf<RuntimeError>([&] { TokenFileSet(folder / "a.tok"); }), "shards are there"));
  }
  SECTION("a shard of another set is an error") {
    WriteDocuments(folder / "b.tok", {std::vector<int32_t>(13, 1)}, 257, 4);
    fs::copy_file(folder / "b-00002-of-00004.tok", files[2], fs::copy_options::overwrite_existing);
    CHECK(Contains(MessageOf<RuntimeError>([&] { TokenFileSet(folder / "a.tok"); }), "not of one set"));
  }
  SECTION("shards of two conversions are an error") {
    WriteDocuments(folder / "b.tok", {std::vector<int32_t>(13, 1)}, 257, 5);
    fs::copy_file(folder / "b-00002-of-00003.tok", folder / "a-00002-of-00003.tok");
    CHECK_THROWS_AS(TokenFileSet(folder / "a.tok"), RuntimeError);
  }
}

TEST_CASE("a writer replaces nothing by accident, and leaves nothing behind") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3}}, 257);
  const std::string before = ReadFile(folder / "a.tok");

  SECTION("the same again changes nothing") {
    TokenFileWriter writer(folder / "a.tok", "bytes", 257);
    writer.BeginDocument();
    writer.Append({1, 2, 3});
    CHECK(writer.Commit(false) == TokenFileWriter::Outcome::unchanged);
  }
  SECTION("something else is refused without force") {
    CHECK(Contains(MessageOf<UsageError>([&] { WriteDocuments(folder / "a.tok", {{9}}, 257); }), "--force"));
  }
  SECTION("another sharding of the same name is refused too") {
    CHECK(Contains(MessageOf<UsageError>([&] { WriteDocuments(folder / "a.tok", {{1, 2, 3}}, 257, 2); }), "--force"));
  }
  SECTION("a writer that is dropped leaves the old file") {
    TokenFileWriter writer(folder / "a.tok", "bytes", 257);
    writer.BeginDocument();
    writer.Append({9});
  }
  SECTION("an empty set is refused") {
    CHECK_THROWS_AS(TokenFileWriter(folder / "a.tok", "bytes", 257).Commit(true), UsageError);
  }
  CHECK(folder.Names() == std::set<std::string>{"a.tok"});
  CHECK(ReadFile(folder / "a.tok") == before);
}

TEST_CASE("force replaces a set whole, whatever its sharding was") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3}}, 257, 1);
  WriteDocuments(folder / "a.tok", {{1, 2, 3}}, 257, 2, true);
  CHECK(folder.Names() == std::set<std::string>{"a-00000-of-00002.tok", "a-00001-of-00002.tok"});
  WriteDocuments(folder / "a.tok", {{1, 2, 3}}, 257, 0, true);
  CHECK(folder.Names() == std::set<std::string>{"a.tok"});
}

TEST_CASE("tokens outside the vocabulary and names without .tok are refused") {
  TempFolder folder;
  CHECK_THROWS_AS(WriteDocuments(folder / "a.tok", {{257}}, 257), RuntimeError);
  CHECK_THROWS_AS(WriteDocuments(folder / "a.tok", {{-1}}, 257), RuntimeError);
  CHECK_THROWS_AS(TokenFileWriter(folder / "a.bin", "bytes", 257), UsageError);
  CHECK(folder.Names().empty());
}

}  // namespace ds
