// Promise: what is read is what was written: whatever the compression, however bytes arrive, nothing is lost, added or
// misread in silence.
#include "runtime/data/text_source.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "test/unit/data/compress.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::Gzip;
using test::MessageOf;
using test::TempFolder;
using test::Zstd;
namespace fs = std::filesystem;

/// Hands out a few bytes at a time.
class SlowSource : public ByteSource {
 public:
  SlowSource(std::unique_ptr<ByteSource> source, size_t step)
      : ByteSource(source->name()), source_(std::move(source)), step_(step) {}
  size_t Read(char* out, size_t most) override { return source_->Read(out, std::min(most, step_)); }
  int64_t position() const override { return source_->position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  size_t step_;
};

std::string ReadAll(std::unique_ptr<ByteSource> source, size_t step) {
  std::string text;
  std::string block(step, '\x7f');
  while (const size_t count = source->Read(block.data(), block.size())) text.append(block, 0, count);
  return text;
}

class Collect : public DocumentSink {
 public:
  void BeginDocument() override { documents.emplace_back(); }
  void Text(std::string_view part) override {
    CHECK_FALSE(part.empty());
    CHECK(part.size() <= kPartBytes);
    documents.back().emplace_back(part);
  }
  void EndDocument() override { ++ends; }
  std::vector<std::vector<std::string>> documents;  // parts of each
  size_t ends = 0;
};

struct Documents {
  std::vector<std::string> texts;
  std::vector<std::vector<std::string>> parts;
  int64_t empty = 0;
};

Documents Read(const std::string& bytes, InputKind kind, const std::string& field = "text") {
  Collect sink;
  Documents result;
  result.empty = ReadDocuments(MemorySource(bytes, "a.txt"), kind, field, sink);
  CHECK(sink.ends == sink.documents.size());
  for (const auto& parts : sink.documents) {
    result.texts.emplace_back();
    for (const std::string& part : parts) result.texts.back() += part;
  }
  result.parts = sink.documents;
  return result;
}

std::string DecompressError(const std::string& bytes, const std::string& name = "a.txt") {
  return MessageOf<UsageError>([&] { ReadAll(Decompressed(MemorySource(bytes, name)), 1000); });
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("compressed bytes are read by what they are, members and frames one after the other, however they arrive") {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "line " + std::to_string(i * i) + "\n";
  const std::string skippable(
      "\x53\x2a\x4d\x18\x03\x00\x00\x00"
      "abc",
      11);
  const std::string whole = text + "second" + text;
  const std::string forms[] = {whole,
                               Gzip(whole),
                               Gzip(text) + Gzip("second") + Gzip("") + Gzip(text),
                               Gzip(whole) + std::string(600, '\0'),
                               Zstd(whole),
                               Zstd(text) + skippable + Zstd("second") + Zstd(text),
                               skippable + Zstd(whole)};
  for (size_t form = 0; form < std::size(forms); ++form) {
    for (const size_t step : {size_t{7}, size_t{100000}}) {
      CAPTURE(form, step);
      auto source = Decompressed(std::make_unique<SlowSource>(MemorySource(forms[form], "a.txt"), step));
      REQUIRE(ReadAll(std::move(source), step == 7 ? 100000 : 13) == whole);
    }
  }
  CHECK(ReadAll(Decompressed(MemorySource("", "a.txt")), 10) == "");
  CHECK(ReadAll(Decompressed(MemorySource(Gzip(""), "a")), 10) == "");
}

TEST_CASE("compressed bytes cut short anywhere, or damaged, are errors with name and offset") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i * 7919 % 1000) + " ";
  for (const std::string& bytes : {Gzip(text), Zstd(text)}) {
    const bool gzip = bytes[0] == '\x1f';
    CAPTURE(gzip);
    for (size_t size = gzip ? 2 : 4; size < bytes.size(); ++size) {
      CAPTURE(size);
      const std::string error = DecompressError(bytes.substr(0, size));
      CHECK(Contains(error, "a.txt: at byte " + std::to_string(size)));
      CHECK(Contains(error, "cut short"));
    }
    CHECK(Contains(DecompressError(bytes + bytes.substr(0, bytes.size() - 3)), "cut short"));
    int found = 0;
    for (size_t at = 12; at < bytes.size(); ++at) {  // not every bit of a header means something
      CAPTURE(at);
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      try {
        const std::string read = ReadAll(Decompressed(MemorySource(damaged, "a.txt")), 1000);
        CHECK(read == text);
      } catch (const UsageError& error) {
        ++found;
        CHECK(Contains(error.what(), "a.txt: at byte "));
      }
    }
    CHECK(found > static_cast<int>(bytes.size()) - 16);
    CHECK(Contains(DecompressError(bytes + "more"), "a.txt: at byte "));
  }
  CHECK(Contains(DecompressError(Gzip(text) + std::string(4, '\0') + Gzip(text)), "follows the last member"));
}

TEST_CASE("names that lie about compression and formats that are not read are errors") {
  CHECK(Contains(DecompressError("plain", "b.jsonl.gz"), "b.jsonl.gz: its name says that it is compressed"));
  CHECK(Contains(DecompressError("", "b.zst"), "b.zst: its name says"));
  CHECK(Contains(DecompressError(std::string("\xfd"
                                             "7zXZ\0abc",
                                             9)),
                 "xz"));
  CHECK(Contains(DecompressError("BZh91AY&SYabc"), "bzip2"));
  CHECK(Contains(DecompressError("PK\x03\x04"
                                 "abcdef"),
                 "zip"));
}

TEST_CASE("a small file that decompresses to a large one is read in bounded memory") {
  const std::string bomb = Gzip(std::string(30 << 20, 'x'));
  CHECK(bomb.size() < 60000);
  UnitReader reader(MemorySource(bomb, "bomb"), InputKind::text);
  int64_t total = 0;
  for (TextUnit unit; reader.Next(unit);) {
    CHECK(unit.bytes.capacity() <= 2 * kPartBytes);
    total += static_cast<int64_t>(unit.bytes.size());
  }
  CHECK(total == 30 << 20);
}

TEST_CASE("a text is one document: bytes as they are, without a byte-order mark") {
  CHECK(Read("a\r\nb\r\n", InputKind::text).texts == Texts{"a\r\nb\r\n"});
  CHECK(Read("\xef\xbb\xbf"
             "a\xef\xbb\xbf",
             InputKind::text)
            .texts == Texts{"a\xef\xbb\xbf"});
  CHECK(Read("\xff\xfe\x80", InputKind::text).texts == Texts{"\xff\xfe\x80"});
  CHECK(Read(Gzip("\xef\xbb\xbf"
                  "a"),
             InputKind::text)
            .texts == Texts{"a"});
  for (const char* nothing : {"", "\xef\xbb\xbf"}) {
    CHECK(Read(nothing, InputKind::text).texts.empty());
    CHECK(Read(nothing, InputKind::text).empty == 1);
  }
}

TEST_CASE("long documents are cut at the last newline, else space, else character, and nowhere else") {
  const size_t most = kPartBytes;
  auto part = [](const std::string& text) { return PartLength(text); };
  CHECK(part(std::string(most, 'x')) == most);
  CHECK(part(std::string(most + 1, 'x')) == most);
  std::string text(most + 10, 'x');
  text[most] = '\n';  // not in the first kPartBytes
  CHECK(part(text) == most);
  text[700] = ' ';
  CHECK(part(text) == 700);  // the space begins the next part
  text[900] = ' ';
  CHECK(part(text) == 900);
  text[5] = '\n';
  CHECK(part(text) == 6);  // the newline ends its part
  text.assign(most + 10, 'x');
  text[0] = ' ';
  CHECK(part(text) == most);
  text.assign(most - 2, 'x');
  text += "\xf0\x9f\x98\x80 more";
  CHECK(part(text) == most - 2);
  CHECK(part(std::string(most + 10, '\x80')) == most);

  std::string words;
  while (words.size() < 3 * most + most / 2)
    words += "word" + std::to_string(words.size()) + (words.size() % 7 ? " " : "\n");
  const Documents documents = Read(words, InputKind::text);
  REQUIRE(documents.texts == Texts{words});
  REQUIRE(documents.parts[0].size() == 4);
  std::string lines = "{\"text\": \"";
  for (char c : words) lines += c == '\n' ? std::string("\\n") : std::string(1, c);
  const Documents json =
      Read("{\"text\": \"a\"}\n" + lines + "\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}", InputKind::json_lines);
  CHECK(json.empty == 1);
  REQUIRE(json.texts == Texts{"a", words, "b"});
  CHECK(json.parts[1] == documents.parts[0]);
}

TEST_CASE("reading goes on at any unit's end as if it had not stopped") {
  std::string text = "\xef\xbb\xbf", lines = "\xef\xbb\xbf";
  for (int i = 0; text.size() < 3 << 20; ++i) text += "some words " + std::to_string(i);
  for (int i = 0; lines.size() < 3 << 20; ++i) lines += "{\"text\": \"" + std::string(i % 3000, 'a') + "\"}\r\n";
  for (const InputKind kind : {InputKind::text, InputKind::json_lines}) {
    const std::string bytes = Zstd(kind == InputKind::text ? text : lines);
    auto open = [&](int64_t offset, int64_t line) { return UnitReader(MemorySource(bytes, "a"), kind, offset, line); };
    UnitReader reader = open(0, 1);
    std::vector<TextUnit> units;
    std::vector<std::pair<int64_t, int64_t>> places;
    for (TextUnit unit; reader.Next(unit); units.push_back(unit)) places.emplace_back(reader.offset(), reader.line());
    REQUIRE(units.size() >= 3);
    for (size_t i = 0; i < units.size(); ++i) {
      UnitReader again = open(places[i].first, places[i].second);
      for (size_t k = i + 1; k < units.size(); ++k) {
        TextUnit unit;
        REQUIRE(again.Next(unit));
        REQUIRE(unit.bytes == units[k].bytes);
        CHECK(unit.begins == units[k].begins);
        CHECK(unit.ends == units[k].ends);
        CHECK(unit.first_line == units[k].first_line);
      }
      TextUnit unit;
      CHECK_FALSE(again.Next(unit));
    }
    CHECK_THROWS_AS(open(1 << 30, 1), UsageError);
  }
}

TEST_CASE("fields of JSON lines: escapes, surrogates, dotted names, other keys of any kind") {
  auto read = [](const std::string& line, const std::string& field) {
    return Read(line, InputKind::json_lines, field).texts;
  };
  CHECK(read(R"({"text": "a\u00e9\ud83d\ude00\n\"\\\/\t\u0000b"})", "text") ==
        Texts{std::string("a\xc3\xa9\xf0\x9f\x98\x80\n\"\\/\t\0b", 14)});
  CHECK(read(R"({"a": [1, {"text": "no"}, "x"], "n": null, "a": 2, "text": "yes", "o": {"text": 3}})", "text") ==
        Texts{"yes"});
  CHECK(read(R"({"meta": {"id": 1, "text": "inner"}, "text": "outer"})", "meta.text") == Texts{"inner"});
  CHECK(read(R"({"meta": {"text": "inner"}, "meta.text": "literal"})", "meta.text") == Texts{"literal"});
  CHECK(read(R"({"meta.text": "literal", "meta": {"text": "inner"}})", "meta.text") == Texts{"literal"});
  CHECK(read(R"({"a": {"b.c": "x"}, "z": {}})", "a.b.c") == Texts{"x"});
  CHECK(read("\xef\xbb\xbf{\"text\": \"after a mark\"}\n\n \t\r\n", "text") == Texts{"after a mark"});

  auto error = [](const std::string& line, const std::string& field = "text") {
    return MessageOf<UsageError>([&] { Read("{\"text\": \"fine\"}\n" + line, InputKind::json_lines, field); });
  };
  CHECK(Contains(error(R"({"text": "a\ud83d"})"), "a.txt:2:12: a high surrogate without"));
  CHECK(Contains(error(R"({"text": "a\ude00"})"), "a.txt:2:12: a low surrogate"));
  CHECK(Contains(error("{\"text\": \"a\xff\"}"), "a.txt:2:12: a byte that is not UTF-8"));
  CHECK(Contains(error(R"({"text": "a", "text": "b"})"), "a.txt:2:23: the field is there twice"));
  CHECK(Contains(error(R"({"meta": "no object"})"), "a.txt:2: no field `text`; it has meta"));
  CHECK(Contains(error(R"({"text": ["a"]})"), "a.txt:2: field `text` is not a string"));
  CHECK(Contains(error(R"({"text": "a", "b": [1, }]})"), "a.txt:2:24: "));
  CHECK(Contains(error(R"({"text": "a"} x)"), "a.txt:2:15: text after the end"));
  CHECK(Contains(error(std::string(200, '[')), "nested deeper"));
}

TEST_CASE("a line longer than the limit is an error that names it, not memory") {
  std::string lines = "{\"text\": \"a\"}\n{\"text\": \"";
  lines.append(kLineLimit, 'x');
  const std::string bytes = Zstd(lines + "\"}\n");
  const std::string error = MessageOf<UsageError>([&] { Read(bytes, InputKind::json_lines); });
  CHECK(Contains(error, "a.txt:2: the line is longer than 64 MiB"));
}

TEST_CASE("folders stand for their data by path, subfolders included, hidden ones not") {
  TempFolder folder;
  for (const char* name : {"b/2.txt", "b/1.jsonl.gz", "a.txt.zst", "c.ndjson", "notes.md", ".hidden.txt", ".git/x.txt",
                           "x.tok.partial/tokens.txt", "b/d/deep.txt", "e.json"})
    folder.Write(name, "x");
  fs::create_directory_symlink(folder / "b", folder / "z");
  fs::create_directory_symlink(folder.path(), folder / "b/loop");
  auto names = [&](const InputOptions& options) {
    std::vector<std::string> found;
    for (const DataInput& input : FindInputs({folder.path()}, options))
      found.push_back(input.path.lexically_relative(folder.path()).string());
    return found;
  };
  CHECK(FindInputs({folder / "b"})[0].kind == InputKind::json_lines);
  const std::vector<std::string> expected{"a.txt.zst", "b/1.jsonl.gz", "b/2.txt", "b/d/deep.txt",
                                          "c.ndjson",  "z/1.jsonl.gz", "z/2.txt", "z/d/deep.txt"};
  CHECK(names({}) == expected);
  CHECK(names({InputKind::json_lines}).size() == expected.size() + 1);
  CHECK(Contains(MessageOf<UsageError>([&] { FindInputs({folder / "e.json"}); }), "--format"));
  CHECK(FindInputs({folder / "e.json"}, {InputKind::text})[0].kind == InputKind::text);
  CHECK(Contains(MessageOf<UsageError>([&] { FindInputs({"-"}); }), "- does not exist"));
  CHECK(Contains(MessageOf<UsageError>([&] { FindInputs({"-"}, {{}, true}); }), "standard input has no name"));
  fs::create_symlink(folder / "unmounted", folder / "b/notes.md.link");
  CHECK(names({}) == expected);
  fs::create_symlink(folder / "unmounted", folder / "b/3.txt");
  CHECK(Contains(MessageOf<UsageError>([&] { FindInputs({folder / "b"}); }), "b/3.txt is a link to a file that does"));
}

}  // namespace ds
