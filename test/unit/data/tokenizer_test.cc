// Tokenizer files: what the library's own programs give, any bytes there and back, foreign and damaged models.
#include "runtime/data/tokenizer.h"

#include <atomic>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/sentencepiece/library.h"
#include "runtime/data/sentencepiece_rules.h"
#include "runtime/job/tokenizer_file.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;

std::string Data(const std::string& name) { return std::string(DS_SOURCE_DIR "/test/data/tokenizers/") + name; }

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> tokens{-7};  // what is there stays
  tokenizer.Encode(text, tokens);
  REQUIRE(tokens.front() == -7);
  tokens.erase(tokens.begin());
  return tokens;
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) text += tokenizer.Decode(token);
  return text;
}

/// A model trained here, with settings that `ds-convert tokenizer` does not offer.
std::string Train(std::map<std::string, std::string> settings) {
  std::istringstream lines(ReadFile(Data("train.txt")));
  std::vector<std::string> sentences;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) sentences.push_back(line);
  settings.insert({{"vocab_size", "330"}, {"model_type", "bpe"}, {"num_threads", "1"}, {"hard_vocab_limit", "false"}});
  std::string failure;
  std::string bytes = OpenSentencePiece().Train(settings, sentences, failure);
  REQUIRE(failure == "");
  return bytes;
}

}  // namespace

TEST_CASE("tokens are those that SentencePiece's own program gives") {
  for (const std::string name : {"own", "prefixed"}) {
    const auto tokenizer = MakeTokenizer(Data(name + ".model"));
    CAPTURE(name);
    CHECK(tokenizer->vocabulary() == 400);
    CHECK(tokenizer->id() == SentencePieceId(ReadFile(Data(name + ".model"))));
    CHECK(tokenizer->id().size() == 19);
    std::istringstream lines(ReadFile(Data("lines.txt"))), goldens(ReadFile(Data(name + ".ids")));
    std::string line, golden;
    int count = 0;
    for (; std::getline(lines, line) && std::getline(goldens, golden); ++count) {
      std::istringstream numbers(golden);
      std::vector<int32_t> expected;
      for (int32_t id; numbers >> id;) expected.push_back(id);
      CAPTURE(line);
      CHECK(Encode(*tokenizer, line) == expected);
      CHECK(Decode(*tokenizer, expected) == (tokenizer->adds_space() ? " " : "") + line);
    }
    CHECK(count == 8);
  }
}

TEST_CASE("a trained tokenizer gives any bytes back") {
  const auto tokenizer = MakeTokenizer(Data("own.model"));
  CHECK(tokenizer->lossless());
  CHECK_FALSE(tokenizer->adds_space());
  CHECK(tokenizer->end_of_document() == 1);
  CHECK(tokenizer->Decode(1) == "");
  CHECK(tokenizer->Decode(-1) == "");
  CHECK(tokenizer->Decode(400) == "");
  auto check = [&](const std::string& text) {
    const std::vector<int32_t> tokens = Encode(*tokenizer, text);
    for (int32_t token : tokens) REQUIRE((token > 1 && token < 400));
    REQUIRE(Decode(*tokenizer, tokens) == text);
  };
  for (const char* text : {"",
                           " ",
                           "   ",
                           "\n",
                           "\n\n\n a",
                           "a\r\nb\r\n",
                           "\t\tx",
                           " \n \t ",
                           "</s><unk><0x41>",
                           "\xE2\x96\x81",
                           "a \xE2\x96\x81 b",
                           "\xE2\x96\x85",
                           "\xEF\xBB\xBFmark",
                           "e\xCC\x81",
                           "\xEF\xAC\x81",
                           "\xE2\x81\x87",
                           "\xFF",
                           "\xE2\x96",
                           "x\xF0\x9F\x98",
                           "\xC0\xAF",
                           "\xED\xA0\x80"})
    check(text);
  check(std::string("a\0b\0", 4));
  std::mt19937 random(3);
  const std::vector<std::string> parts{" ",
                                       "  ",
                                       "the",
                                       "token",
                                       "\n",
                                       "9",
                                       "\xE2\x96\x81",
                                       "\xC3\xA9",
                                       "\xE6\xBC\xA2",
                                       "\xF0\x9F\x98\x80",
                                       "\xFE",
                                       "\xE2",
                                       std::string(1, '\0')};
  for (int round = 0; round < 400; ++round) {
    std::string bytes, mixed;
    for (size_t i = random() % 60; i > 0; --i) bytes += static_cast<char>(random());
    for (size_t i = random() % 60; i > 0; --i) mixed += parts[random() % parts.size()];
    check(bytes);
    check(mixed);
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  check(all);
}

TEST_CASE("long texts are cut where it changes no token, whoever tokenizes beside") {
  const auto tokenizer = MakeTokenizer(Data("own.model"));
  std::string text;
  while (text.size() < 30'000) text += ReadFile(Data("train.txt")) + "  ";
  std::string failure;
  const auto model = OpenSentencePiece().Load(ReadFile(Data("own.model")), failure);
  std::vector<int32_t> whole;
  REQUIRE(model->Encode(text, whole) == "");
  CHECK(Encode(*tokenizer, text) == whole);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      std::vector<int32_t> tokens;
      tokenizer->Encode(text, tokens);
      if (tokens != whole) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("foreign models keep their own normalization") {
  TempFolder folder;
  SECTION("no piece that is a space: the library writes the bytes of its mark, which would come back as the mark") {
    std::string bytes = ReadFile(Data("own.model"));
    const std::string space = "\x0A\x03\xE2\x96\x81";  // a piece's first field: its text, three bytes long
    const size_t at = bytes.find(space);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, space.size(), "\x0A\x03\xE4\x80\x80");
    const auto tokenizer = MakeTokenizer(folder.Write("spaceless.model", bytes));
    CHECK(Decode(*tokenizer, Encode(*tokenizer, "q 1")) ==
          "q\xE2\x96\x81"
          "1");
    CHECK_FALSE(tokenizer->lossless());
  }
  SECTION("rules, a space in front, runs of spaces made one") {
    const std::string bytes =
        Train({{"model_type", "unigram"}, {"normalization_rule_name", "nmt_nfkc"}, {"vocab_size", "150"}});
    CHECK_NOTHROW(CheckNormalizationRules(ReadSentencePieceFile(bytes).normalization));
    const auto tokenizer = MakeTokenizer(folder.Write("t5.model", bytes));
    CHECK_FALSE(tokenizer->lossless());
    CHECK(tokenizer->adds_space());
    CHECK(Decode(*tokenizer, Encode(*tokenizer, "  a \xEF\xBD\x94he   text ")) == " a the text");
    CHECK(Decode(*tokenizer, Encode(*tokenizer, "a \xF0\x9F\x98\x80")) == " a  \xE2\x81\x87 ");
  }
  SECTION("no piece that ends documents") {
    const std::string path = folder.Write("endless.model", Train({{"eos_id", "-1"}}));
    const std::string message = MessageOf<UsageError>([&] { MakeTokenizer(path); });
    CHECK(Contains(message, path));
    CHECK(Contains(message, "no </s> piece"));
  }
}

TEST_CASE("what is no model is refused by its name") {
  TempFolder folder;
  auto message = [](const std::string& path) {
    const std::string text = MessageOf<UsageError>([&] { MakeTokenizer(path); });
    CHECK(Contains(text, path));
    CHECK_THROWS_AS(IdentifyTokenizer(path), UsageError);
    return text;
  };
  CHECK(Contains(message(folder / "absent.model"), "there is no tokenizer file"));
  CHECK(Contains(message(folder.path()), "not a regular file"));
  CHECK(Contains(message(folder.Write("empty", "")), "it is empty"));
  CHECK(Contains(message(folder.Write("text", "This is a text, and no model.\n")), "no SentencePiece model"));
  CHECK(Contains(message(folder.Write("json", "{\"model\": {\"type\": \"BPE\"}}")), "no SentencePiece model"));
  CHECK(Contains(message(folder.Write("short", ReadFile(Data("own.model")).substr(0, 3000))), "damaged"));
  std::string odd = ReadFile(Data("own.model"));
  odd.replace(odd.find("<0x41>"), 6, "<0x\n1>");  // the library quotes it
  const std::string path = folder.Write("odd", odd);
  const std::string text = MessageOf<UsageError>([&] { MakeTokenizer(path); });
  CAPTURE(text);
  CHECK(Contains(text, "cannot be used: "));
  CHECK(text.find("1>") != std::string::npos);
  CHECK_FALSE(Contains(text, "\n"));
  CHECK(IdentifyTokenizer("bytes").id == "bytes");
  CHECK(IdentifyTokenizer("bytes").vocabulary == 257);
  CHECK(IdentifyTokenizer(Data("own.model")).vocabulary == 400);
}

TEST_CASE("a damaged model is refused or known by another id") {
  const std::string whole = ReadFile(Data("own.model"));
  const std::string id = SentencePieceId(whole);
  TempFolder folder;
  const std::string path = folder / "damaged.model";
  int refused = 0;
  auto check = [&](const std::string& bytes) {
    try {
      test::Overwrite(path, bytes);
      const auto tokenizer = MakeTokenizer(path);
      REQUIRE(tokenizer->id() != id);
      std::vector<int32_t> tokens;
      tokenizer->Encode("The text, \xF0\x9F\x98\x80 again: 42", tokens);
      for (int32_t token : tokens) REQUIRE((token >= 0 && token < tokenizer->vocabulary()));
    } catch (const UsageError& error) {
      ++refused;
      REQUIRE(Contains(error.what(), path));
    }
  };
  for (size_t at = 0; at < whole.size(); at += 2) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at / 2 % 8));
    check(flipped);
  }
  CHECK(refused > 1000);
  for (size_t size = 0; size < whole.size(); size += 13) check(whole.substr(0, size));
}

TEST_CASE("damaged normalization rules are refused") {
  const std::string bytes =
      Train({{"model_type", "unigram"}, {"normalization_rule_name", "nfkc"}, {"vocab_size", "150"}});
  const std::string rules(ReadSentencePieceFile(bytes).normalization);
  REQUIRE(rules.size() > 10'000);
  CheckNormalizationRules(rules);
  CheckNormalizationRules("");
  CHECK_THROWS_AS(CheckNormalizationRules(std::string(6, '\0')), UsageError);  // a trie of no units
  for (const std::string& broken : {rules.substr(0, 3), rules.substr(0, 4), rules.substr(0, rules.size() / 2),
                                    rules.substr(0, rules.size() - 1), "\x03" + rules.substr(1)})
    CHECK_THROWS_AS(CheckNormalizationRules(broken), UsageError);
  std::string wild = rules;
  for (size_t at = 4; at < 4 + 4 * 256; at += 4) wild[at + 3] = static_cast<char>(0x7F);  // far offsets near the root
  CHECK_THROWS_AS(CheckNormalizationRules(wild), UsageError);
  std::string cycle = rules;  // the root is its own descendant, by the byte that leads to it
  std::memset(cycle.data() + 4, 0, 4);
  CHECK_THROWS_AS(CheckNormalizationRules(cycle), UsageError);
}

}  // namespace ds
