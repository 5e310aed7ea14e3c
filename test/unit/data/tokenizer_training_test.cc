// Training tokenizers: the same file each time, bounds on the vocabulary, the text that is trained on.
#include "runtime/data/tokenizer_training.h"

#include "runtime/base/error.h"
#include "runtime/data/tokenizer.h"
#include "runtime/data/training_text.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;

const std::string kText = DS_SOURCE_DIR "/test/data/tokenizers/train.txt";

TokenizerTrainingOptions Options(const TempFolder& folder, int64_t vocabulary) {
  TokenizerTrainingOptions options;
  options.inputs = {kText};
  options.output = folder / "out/x.model";
  options.vocabulary = vocabulary;
  return options;
}

std::string Join(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += sentence;
  return text;
}

}  // namespace

TEST_CASE("training gives the same file each time, lossless, of the size asked for") {
  TempFolder folder;
  TokenizerTrainingOptions options = Options(folder, 400);
  options.type = GENERATE("bpe", "unigram");
  CAPTURE(options.type);
  const TokenizerTrainingResult first = TrainTokenizer(options);
  CHECK(first.vocabulary == 400);
  CHECK(first.text_bytes == first.sample_bytes);
  CHECK(first.bytes_per_token > 1.3);
  CHECK_FALSE(first.unchanged);
  const std::string bytes = ReadFile(options.output);
  CHECK(TrainTokenizer(options).unchanged);
  CHECK(ReadFile(options.output) == bytes);
  if (options.type == "bpe") CHECK(bytes == ReadFile(DS_SOURCE_DIR "/test/data/tokenizers/own.model"));
  const auto tokenizer = MakeTokenizer(options.output);
  CHECK(tokenizer->id() == first.id);
  std::vector<int32_t> tokens;
  tokenizer->Encode("12\n\n  \xFF 34", tokens);
  std::string text;
  for (int32_t token : tokens) text += tokenizer->Decode(token);
  CHECK(text == "12\n\n  \xFF 34");

  options.vocabulary = 401;
  CHECK(Contains(MessageOf<UsageError>([&] { TrainTokenizer(options); }), "--force"));
  CHECK(ReadFile(options.output) == bytes);
  options.force = true;
  CHECK(TrainTokenizer(options).vocabulary == 401);
  CHECK(folder.Names() == std::set<std::string>{"out", "out/x.model"});
}

TEST_CASE("digits are split unless they are not to be") {
  TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the year 1994 and the year 2016 ";
  TokenizerTrainingOptions options = Options(folder, 285);
  options.inputs = {folder.Write("years.txt", text)};
  auto tokens_of_year = [&] {
    options.force = true;
    TrainTokenizer(options);
    std::vector<int32_t> tokens;
    MakeTokenizer(options.output)->Encode("1994", tokens);
    return tokens.size();
  };
  CHECK(tokens_of_year() == 4);
  options.split_digits = false;
  CHECK(tokens_of_year() < 4);
}

TEST_CASE("a vocabulary that does not fit the text is refused with the one that does") {
  TempFolder folder;
  auto message = [](const TokenizerTrainingOptions& options) {
    return MessageOf<UsageError>([&] { TrainTokenizer(options); });
  };
  CHECK(Contains(message(Options(folder, 258)), "258 is out of range"));
  CHECK(Contains(message(Options(folder, 300)), "too small"));
  const std::string large = message(Options(folder, 50'000));
  CHECK(Contains(large, "too large"));
  TokenizerTrainingOptions most = Options(folder, std::stoll(large.substr(large.find("--vocabulary ") + 13)));
  CHECK(TrainTokenizer(most).vocabulary == most.vocabulary);
  TokenizerTrainingOptions options = Options(folder, 400);
  options.inputs = {folder.Write("empty.txt", "")};
  CHECK(Contains(message(options), "there is no text"));
  options.inputs = {folder / "absent.txt"};
  CHECK(Contains(message(options), "absent.txt"));
  options.inputs = {folder.Write("x.tok", "a")};
  CHECK(Contains(message(options), "trained on text"));
  options.inputs = {folder.Write("one.txt", "a")};
  CHECK(Contains(message(options), "259"));
  options = Options(folder, 400);
  options.type = "words";
  CHECK(Contains(message(options), "bpe or unigram"));
  options = Options(folder, 400);
  options.progress = [](int64_t, int64_t) { throw UsageError("stopped"); };
  options.output = folder / "none.model";
  CHECK(message(options) == "stopped");
  CHECK_FALSE(std::filesystem::exists(options.output));
}

TEST_CASE("an input is never replaced by the model, and a sample that is too small is told so") {
  TempFolder folder;
  const std::string text = ReadFile(kText);
  TokenizerTrainingOptions options = Options(folder, 400);
  options.inputs = {folder.Write("text.txt", text)};
  options.output = folder / "./text.txt";
  options.force = true;
  CHECK(Contains(MessageOf<UsageError>([&] { TrainTokenizer(options); }), "is an input"));
  CHECK(ReadFile(folder / "text.txt") == text);
  options.output = folder / "x.model";
  options.sample_bytes = 1;
  CHECK(Contains(MessageOf<UsageError>([&] { TrainTokenizer(options); }), "--sample-bytes"));
}

TEST_CASE("training text: whole, in order, cut between lines or words, without what the trainer reserves") {
  std::string document;
  for (int i = 0; i < 3000; ++i) document += "line " + std::to_string(i) + (i % 7 == 0 ? "\n\n" : " and\n");
  TrainingText text(1 << 20);
  text.BeginDocument();
  for (size_t at = 0; at < document.size(); at += 999) text.Text(std::string_view(document).substr(at, 999));
  text.EndDocument();
  CHECK(Join(text.sentences()) == document);
  CHECK(text.text_bytes() == static_cast<int64_t>(document.size()));
  for (const std::string& sentence : text.sentences()) {
    CHECK(sentence.size() <= TrainingText::kMostBytes);
    CHECK(sentence.back() == '\n');
  }

  TrainingText odd(1 << 20);
  odd.Text(
      "a\xFF"
      "b \xE2\x96\x81 c" +
      std::string(1, '\0') + "d\xE2\x96\x85\xE6\xBC\xA2");
  odd.EndDocument();
  CHECK(odd.sentences() == std::vector<std::string>{"a", "b ", " c", "d", "\xE6\xBC\xA2"});

  TrainingText solid(1 << 20);
  std::string han;
  while (han.size() < 20'000) han += "\xE6\xBC\xA2";
  solid.Text(han);
  solid.EndDocument();
  CHECK(Join(solid.sentences()) == han);
}

TEST_CASE("a sample of the text: within the limit, from all of it, the same however it comes") {
  auto sample = [](size_t piece) {
    std::string document;
    for (int i = 0; i < 40'000; ++i) document += "sentence " + std::to_string(i) + "\n";
    TrainingText text(200'000);
    for (size_t at = 0; at < document.size(); at += piece) text.Text(std::string_view(document).substr(at, piece));
    text.EndDocument();
    CHECK(text.kept_bytes() <= 200'000);
    CHECK(text.kept_bytes() > 50'000);
    return text.sentences();
  };
  const std::vector<std::string> sentences = sample(1 << 20);
  CHECK(sample(777) == sentences);
  int last_number = 0;
  std::set<int> quarters;
  for (const std::string& sentence : sentences) {
    const int number = std::stoi(sentence.substr(9));
    CHECK(number >= last_number);
    last_number = number;
    quarters.insert(number / 10'000);
  }
  CHECK(quarters.size() == 4);
}

}  // namespace ds
