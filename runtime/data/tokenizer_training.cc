#include "runtime/data/tokenizer_training.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/data/sentencepiece/library.h"
#include "runtime/data/text_source.h"
#include "runtime/data/tokenizer_sentencepiece.h"
#include "runtime/data/training_text.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFixedPieces = 258;  // <unk>, </s> and the bytes
constexpr int64_t kMostPieces = 1 << 24;

void Check(const TokenizerTrainingOptions& options) {
  if (options.type != "bpe" && options.type != "unigram")
    throw UsageError("there is no tokenizer type `" + options.type + "`; write bpe or unigram");
  if (options.vocabulary <= kFixedPieces || options.vocabulary > kMostPieces)
    throw UsageError("a vocabulary of " + std::to_string(options.vocabulary) + " is out of range: write " +
                     std::to_string(kFixedPieces + 1) + " to " + std::to_string(kMostPieces) + " (256 bytes, <unk>, " +
                     "</s>, and pieces of text)");
  if (!(options.character_coverage > 0 && options.character_coverage <= 1))
    throw UsageError("the character coverage must be above 0 and at most 1");
  if (options.sample_bytes < 1 || options.sample_bytes > 1'000'000'000)
    throw UsageError("the sample must be 1 to 1e9 bytes: the trainer's memory is some tens of times that");
  if (options.output.empty()) throw UsageError("the output has no name");
}

/// What makes a tokenizer for language models: nothing is normalized, added or removed, no character is unknown.
std::map<std::string, std::string> Settings(const TokenizerTrainingOptions& options) {
  return {
      {"model_type", options.type},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"character_coverage", JsonNumber(options.character_coverage)},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},  // runs of spaces, as in code
      {"split_digits", options.split_digits ? "true" : "false"},
      {"unk_id", "0"},
      {"eos_id", "1"},  // ends documents
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"max_sentence_length", std::to_string(TrainingText::kMostBytes)},
      {"num_threads", "4"},  // fixed: the order in which unigram adds up depends on it
  };
}

/// The first number behind `mark` in `text`; -1: none.
int64_t NumberAfter(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  if (at == text.npos) return -1;
  int64_t number = -1;
  std::from_chars(text.data() + at + mark.size(), text.data() + text.size(), number);
  return number;
}

/// The library's messages in words of use. It states the numbers that would have worked.
[[noreturn]] void ThrowTrainingError(const TokenizerTrainingOptions& options, const std::string& failure,
                                     int64_t sample_bytes) {
  const std::string wanted = std::to_string(options.vocabulary), text = std::to_string(sample_bytes) + " bytes of text";
  if (const int64_t most = NumberAfter(failure, "to a value <= "); most >= 0)
    throw UsageError("a vocabulary of " + wanted + " is too large for " + text + ", which give " +
                     std::to_string(most) + " pieces; give more text, or write --vocabulary " + std::to_string(most) +
                     " or less");
  if (const int64_t least = NumberAfter(failure, "required_chars. " + wanted + " vs "); least >= 0)
    throw UsageError("a vocabulary of " + wanted + " is too small: the text's characters and the bytes need " +
                     std::to_string(least) + "; write --vocabulary " + std::to_string(least) +
                     " or more, or a lower --character-coverage, which leaves rare characters to their bytes");
  throw UsageError("SentencePiece cannot train a vocabulary of " + wanted + " on " + text + ": " + failure);
}

/// The share of the sample in the first megabyte of it.
double BytesPerToken(const Tokenizer& tokenizer, const std::vector<std::string>& sentences) {
  int64_t bytes = 0;
  std::vector<int32_t> tokens;
  for (const std::string& sentence : sentences) {
    if (bytes >= 1'000'000) break;
    tokenizer.Encode(sentence, tokens);
    bytes += static_cast<int64_t>(sentence.size());
  }
  return tokens.empty() ? 0 : static_cast<double>(bytes) / static_cast<double>(tokens.size());
}

/// Whether the output holds `bytes` already. Throws UsageError: something else, and it may not be replaced.
bool HoldsAlready(const fs::path& output, const std::string& bytes, bool force) {
  std::error_code error;
  if (!fs::exists(output, error)) return false;
  if (fs::is_regular_file(output, error) && ReadFile(output) == bytes) return true;
  if (!fs::is_regular_file(output, error)) throw UsageError(output.string() + " exists and is not a regular file");
  if (!force) throw UsageError(output.string() + " exists and holds something else; --force replaces it");
  return false;
}

}  // namespace

TokenizerTrainingResult TrainTokenizer(const TokenizerTrainingOptions& options) {
  Check(options);
  const std::vector<DataInput> inputs = FindInputs(options.inputs, {options.format, true});
  const auto size_of = [](const DataInput& input) {
    return input.stream ? 0 : static_cast<int64_t>(fs::file_size(input.path));
  };
  int64_t total = 0, before = 0;
  for (const DataInput& input : inputs) {
    if (input.kind == InputKind::tokens || input.kind == InputKind::megatron)
      throw UsageError(input.path.string() + " holds tokens; a tokenizer is trained on text");
    if (std::error_code error; fs::equivalent(input.path, options.output, error))
      throw UsageError(options.output.string() + " is an input; name another output");
    total += size_of(input);
  }
  TrainingText text(options.sample_bytes);
  if (options.progress) text.progress = [&](int64_t done) { options.progress(std::min(before + done, total), total); };
  for (const DataInput& input : inputs) {
    ReadDocuments(input, options.field, text);
    before += size_of(input);
  }
  if (text.sentences().empty() && text.text_bytes() > options.sample_bytes)
    throw UsageError("a sample of " + std::to_string(options.sample_bytes) + " bytes is too small to hold any of the " +
                     std::to_string(text.text_bytes()) + " bytes of text: they are drawn in passages of up to " +
                     std::to_string(TrainingText::kMostBytes) + "; write a larger --sample-bytes");
  if (text.sentences().empty())
    throw UsageError("there is no text in " + options.inputs.front() +
                     (options.inputs.size() > 1 ? " and the others" : "") + " to train a tokenizer on");
  if (options.progress) options.progress(-1, total);

  std::string failure;
  const std::string bytes = OpenSentencePiece().Train(Settings(options), text.sentences(), failure);
  if (bytes.empty()) ThrowTrainingError(options, failure, text.kept_bytes());
  const std::unique_ptr<Tokenizer> tokenizer = MakeSentencePieceTokenizer(bytes, options.output.string());
  if (!tokenizer->lossless()) throw RuntimeError("the trained tokenizer is not lossless");
  TokenizerTrainingResult result;
  result.id = tokenizer->id();
  result.vocabulary = tokenizer->vocabulary();
  result.text_bytes = text.text_bytes();
  result.sample_bytes = text.kept_bytes();
  result.bytes_per_token = BytesPerToken(*tokenizer, text.sentences());
  result.unchanged = HoldsAlready(options.output, bytes, options.force);
  if (result.unchanged) return result;
  if (options.output.has_parent_path()) MakeDirectories(options.output.parent_path());
  WriteFileAtomically(options.output, bytes);
  return result;
}

}  // namespace ds
