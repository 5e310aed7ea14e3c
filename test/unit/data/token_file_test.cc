#include "runtime/data/token_file.h"

#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

#include "runtime/base/checksum.h"
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

TEST_CASE("each field that says something impossible is named, though every checksum holds") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3}, {4, 256}}, 257);
  const std::string whole = ReadFile(folder / "a.tok");
  REQUIRE(whole.size() == 128 + 16 + 16);     // 5 tokens, 6 bytes of padding, 2 offsets
  const auto seal = [](std::string& bytes) {  // the checksums of what is there
    const uint64_t payload = Checksum(std::string_view(bytes).substr(128));
    std::memcpy(bytes.data() + 104, &payload, 8);
    const uint64_t header = Checksum(std::string_view(bytes).substr(0, 120));
    std::memcpy(bytes.data() + 120, &header, 8);
  };
  struct Case {
    const char* field;
    size_t at;
    int bytes;
    int64_t value;
    const char* message;
  };
  const Case cases[] = {
      {"magic", 0, 8, 0x4d4d494449445800, "does not begin as token files do"},
      {"byte order", 8, 4, 0x04030201, "byte order"},
      {"version", 12, 4, 2, "its version is 2"},
      {"token width", 16, 4, 3, "its tokens have 3 bytes"},
      {"token width", 16, 4, 0, "its tokens have 0 bytes"},
      {"token width", 16, 4, 4, "it is cut short"},
      {"shard", 20, 4, 1, "it is shard 1 of 1"},
      {"shards", 24, 4, 0, "it is shard 0 of 0"},
      {"reserved", 28, 4, 1, "reserved bytes are not zero"},
      {"reserved", 112, 8, 1, "reserved bytes are not zero"},
      {"vocabulary", 32, 8, 0, "its vocabulary of 0 does not fit"},
      {"vocabulary", 32, 8, -1, "its vocabulary of -1 does not fit"},
      {"vocabulary", 32, 8, 65537, "its vocabulary of 65537 does not fit"},
      {"vocabulary", 32, 8, 256, "token 256 near position 0 is not in its vocabulary of 256"},
      {"tokens", 40, 8, -1, "counts of tokens and documents are impossible"},
      {"tokens", 40, 8, 9, "it is cut short"},
      {"tokens", 40, 8, int64_t{1} << 62, "counts of tokens and documents are impossible"},
      {"tokens", 40, 8, 4, "something was appended"},
      {"documents", 48, 8, 6, "counts of tokens and documents are impossible"},
      {"documents", 48, 8, -1, "counts of tokens and documents are impossible"},
      {"documents", 48, 8, 3, "it is cut short"},
      {"documents", 48, 8, 1, "something was appended"},
      {"a token", 128, 2, 257, "token 257 near position 0"},
      {"a token", 136, 2, 65535, "token 65535 near position 0"},
      {"padding", 139, 1, 1, "the padding behind its tokens is not zero, at byte 139"},
      {"offsets", 144, 8, 3, "document 1 begins at token 3, out of order"},
      {"offsets", 152, 8, 0, "document 1 begins at token 0, out of order"},
      {"offsets", 152, 8, 5, "document 1 begins at token 5, out of order"},
      {"offsets", 144, 8, -1, "document 0 begins at token -1, out of order"},
  };
  for (const Case& test : cases) {
    CAPTURE(test.field, test.value);
    std::string bytes = whole;
    std::memcpy(bytes.data() + test.at, &test.value, static_cast<size_t>(test.bytes));
    seal(bytes);
    const std::string message = MessageOf<RuntimeError>([&] { TokenFile(bytes, "b.tok").Verify(); });
    CHECK(message.starts_with("b.tok: "));
    CHECK(Contains(message, test.message));
  }
  std::string sealed = whole;
  seal(sealed);
  CHECK(sealed == whole);
  TokenFile(whole, "b.tok").Verify();
  for (const std::string& foreign : {std::string(200, '\0'), "PAR1" + std::string(500, 'x'), std::string(4096, '{')})
    CHECK(Contains(MessageOf<RuntimeError>([&] { TokenFile(foreign, "b.tok"); }), "b.tok: it does not begin as token"));
}

TEST_CASE("ds-convert verify and inspect name the file and the reason") {
  TempFolder folder;
  WriteDocuments(folder / "a.tok", {{1, 2, 3}, {4, 256}}, 257);
  const std::string whole = ReadFile(folder / "a.tok");
  const auto run = [&](const std::string& command) {
    const std::string program = std::string(DS_BIN_DIR) + "/ds-convert " + command + " '" +
                                (folder / "a.tok").string() + "' > '" + (folder / "log").string() + "' 2>&1";
    const int status = std::system(program.c_str());
    return std::pair{WEXITSTATUS(status), ReadFile(folder / "log")};
  };
  CHECK(run("verify").first == 0);
  CHECK(Contains(run("inspect").second, "5 tokens of 2 bytes, 2 documents, tokenizer bytes, vocabulary 257"));
  struct Case {
    size_t flip, size;
    const char* message;
  };
  for (const Case& test : {Case{3, 160, "does not begin as token files do"}, Case{40, 160, "its header is damaged"},
                           Case{130, 160, "it is damaged: its checksum"}, Case{0, 159, "it is cut short"}}) {
    CAPTURE(test.flip, test.size);
    std::string bytes = whole.substr(0, test.size);
    if (test.flip > 0) bytes[test.flip] ^= 4;
    test::Overwrite(folder / "a.tok", bytes);
    for (const char* command : {"verify", "inspect"}) {
      if (test.flip == 130 && command == std::string("inspect")) continue;  // it reads no tokens
      const auto [code, output] = run(command);
      CHECK(code != 0);
      CHECK(Contains(output, "error: " + (folder / "a.tok").string() + ": "));
      CHECK(Contains(output, test.message));
    }
  }
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
