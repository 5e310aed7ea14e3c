// Generated text as it is shown: whole characters, no space of the tokenizer's own; the tokenizer of a checkpoint.
#include "runtime/generate/text_stream.h"

#include "runtime/base/error.h"
#include "runtime/generate/find_tokenizer.h"
#include "runtime/job/tokenizer_file.h"
#include "test/unit/data/temp_folder.h"

namespace ds {
namespace {

using test::Contains;
using test::MessageOf;
using test::TempFolder;

std::string Data(const std::string& name) { return std::string(DS_SOURCE_DIR "/test/data/tokenizers/") + name; }

std::vector<std::string> Show(const Tokenizer& tokenizer, const std::string& text, bool at_begin) {
  std::vector<int32_t> tokens;
  tokenizer.Encode(text, tokens);
  TextStream stream(tokenizer, at_begin);
  std::vector<std::string> shown;
  for (int32_t token : tokens) shown.push_back(stream.Push(token));
  shown.push_back(stream.Finish());
  return shown;
}

}  // namespace

TEST_CASE("characters of several tokens are shown when they are complete") {
  const auto bytes = MakeTokenizer("bytes");
  CHECK(Show(*bytes, "a\xC3\xA9\xE6\xBC\xA2", true) ==
        std::vector<std::string>{"a", "", "\xC3\xA9", "", "", "\xE6\xBC\xA2", ""});
  CHECK(Show(*bytes, "\xF0\x9F\x98\x80", true) == std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x80", ""});
  CHECK(Show(*bytes, "\xF0\x9F", true) == std::vector<std::string>{"", "", "\xF0\x9F"});
  CHECK(Show(*bytes,
             "\x80\xFF"
             "a",
             true) == std::vector<std::string>{"\x80", "\xFF", "a", ""});
  CHECK(Show(*bytes,
             "\xE6"
             "a",
             true) == std::vector<std::string>{"",
                                               "\xE6"
                                               "a",
                                               ""});

  const auto own = MakeTokenizer(Data("own.model"));
  const std::string text = "The \xF0\x9F\x98\x80 pieces";
  std::string all;
  for (const std::string& piece : Show(*own, text, true)) {
    all += piece;
    CHECK(piece.find('\xF0') == (piece.find('\x80') == piece.npos ? piece.npos : piece.find("\xF0\x9F\x98\x80")));
  }
  CHECK(all == text);
}

TEST_CASE("the space that a tokenizer puts before texts is shown only behind a prompt") {
  const auto prefixed = MakeTokenizer(Data("prefixed.model"));
  auto joined = [&](const std::string& text, bool at_begin) {
    std::string all;
    for (const std::string& piece : Show(*prefixed, text, at_begin)) all += piece;
    return all;
  };
  CHECK(joined("The text", true) == "The text");
  CHECK(joined(" The text", true) == " The text");
  CHECK(joined("The text", false) == " The text");
}

TEST_CASE("a checkpoint's tokenizer is found in its run, and another is refused") {
  TempFolder folder;
  const std::string model = ReadFile(Data("own.model")), other = ReadFile(Data("prefixed.model"));
  const std::filesystem::path checkpoint = folder / "run/checkpoints/step-3";
  std::filesystem::create_directories(checkpoint);
  JobSpec job;
  CHECK(FindTokenizer(job, checkpoint, "")->id() == "bytes");
  CHECK(Contains(MessageOf<UsageError>([&] { FindTokenizer(job, checkpoint, Data("own.model")); }),
                 "was trained with bytes"));

  job.data.tokenizer = folder / "gone.model";
  job.data.tokenizer_id = SentencePieceId(model);
  const std::string nothing = MessageOf<UsageError>([&] { FindTokenizer(job, checkpoint, ""); });
  CHECK(Contains(nothing, "--tokenizer"));
  CHECK(Contains(nothing, "gone.model: not there"));
  CHECK(FindTokenizer(job, checkpoint, Data("own.model"))->id() == job.data.tokenizer_id);

  folder.Write("gone.model", model);
  CHECK(FindTokenizer(job, checkpoint, "")->id() == job.data.tokenizer_id);
  folder.Write("gone.model", other);
  CHECK(Contains(MessageOf<UsageError>([&] { FindTokenizer(job, checkpoint, ""); }), "is " + SentencePieceId(other)));
  folder.Write("run/tokenizer.model", model);
  CHECK(FindTokenizer(job, checkpoint, "")->id() == job.data.tokenizer_id);
  std::filesystem::create_symlink("step-3", folder / "run/checkpoints/latest");
  CHECK(FindTokenizer(job, folder / "run/checkpoints/latest", "")->id() == job.data.tokenizer_id);
  folder.Write("run/tokenizer.model", "damaged");
  CHECK(Contains(MessageOf<UsageError>([&] { FindTokenizer(job, checkpoint, ""); }), "no SentencePiece model"));
  folder.Write("run/checkpoints/step-3/tokenizer.model", model);
  CHECK(FindTokenizer(job, checkpoint, "")->id() == job.data.tokenizer_id);
  CHECK(Contains(MessageOf<UsageError>([&] { FindTokenizer(job, checkpoint, Data("prefixed.model")); }),
                 SentencePieceId(other)));
}

}  // namespace ds
