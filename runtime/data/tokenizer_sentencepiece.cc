#include "runtime/data/tokenizer_sentencepiece.h"

#include <array>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/sentencepiece/library.h"
#include "runtime/data/sentencepiece_rules.h"
#include "runtime/job/tokenizer_file.h"

namespace ds {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581: a space, inside pieces
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";  // U+2047: what the library shows for an unknown piece
/// Longer runs are cut before a space where no piece can reach over: the library's work and memory stay bounded.
constexpr size_t kCutAfter = 4096;
constexpr size_t kLongestReason = 1000;  // of an error, in bytes

std::string WithSpaces(const std::string& piece) {
  std::string text;
  for (std::string_view rest = piece; !rest.empty();) {
    const bool space = rest.starts_with(kSpaceMark);
    text += space ? ' ' : rest[0];
    rest.remove_prefix(space ? kSpaceMark.size() : 1);
  }
  return text;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& bytes, const SentencePieceFile& file,
                         std::unique_ptr<SentencePieceModel> model)
      : id_(SentencePieceId(bytes)), model_(std::move(model)), end_(model_->end_of_sentence()) {
    splits_at_spaces_ = file.splits_at_spaces;
    adds_space_ = file.adds_space;
    lossless_ = !file.adds_space && !file.removes_spaces && file.escapes_spaces && file.normalization.empty();
    byte_tokens_.fill(-1);
    for (int32_t piece = 0; piece < model_->pieces(); ++piece) texts_.push_back(TextOf(piece));
    for (int32_t token : byte_tokens_) lossless_ = lossless_ && token >= 0;
    lossless_ = lossless_ && has_space_;
  }

  std::string id() const override { return id_; }
  int64_t vocabulary() const override { return static_cast<int64_t>(texts_.size()); }
  int32_t end_of_document() const override { return end_; }
  bool lossless() const override { return lossless_; }
  bool adds_space() const override { return adds_space_; }
  std::string Decode(int32_t token) const override {
    return token >= 0 && token < vocabulary() ? texts_[static_cast<size_t>(token)] : std::string();
  }

  void Encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    if (!lossless_) return EncodeRun(text, tokens);
    size_t begin = 0;  // of the run of characters that the library is given
    for (size_t at = 0; at < text.size();) {
      const auto first = static_cast<unsigned char>(text[at]);
      const size_t length = first < 0x80 ? 1 : Utf8Length(text.substr(at));
      if (length == 0 || text.substr(at, kSpaceMark.size()) == kSpaceMark) {
        EncodeRun(text.substr(begin, at - begin), tokens);
        const size_t end = at + std::max<size_t>(1, length);
        for (; at < end; ++at) tokens.push_back(byte_tokens_[static_cast<unsigned char>(text[at])]);
        begin = at;
        continue;
      }
      if (first == ' ' && splits_at_spaces_ && at - begin >= kCutAfter && text[at - 1] != ' ') {
        EncodeRun(text.substr(begin, at - begin), tokens);
        begin = at;
      }
      at += length;
    }
    EncodeRun(text.substr(begin), tokens);
  }

 private:
  void EncodeRun(std::string_view text, std::vector<int32_t>& tokens) const {
    if (text.empty()) return;
    const std::string failure = model_->Encode(text, tokens);
    if (!failure.empty())
      throw RuntimeError("the tokenizer " + id_ + " cannot encode a text: " + Shown(failure, kLongestReason));
  }

  /// What a piece decodes to; notes the pieces that are bytes, and the space.
  std::string TextOf(int32_t piece) {
    switch (model_->KindOf(piece)) {
      case SentencePieceModel::Kind::control:
        return "";
      case SentencePieceModel::Kind::unknown:
        return std::string(kUnknown);
      case SentencePieceModel::Kind::byte: {
        const int byte = std::stoi(model_->Text(piece).substr(3, 2), nullptr, 16);  // "<0x0A>": the library checked it
        byte_tokens_[static_cast<size_t>(byte)] = piece;
        return std::string(1, static_cast<char>(byte));
      }
      case SentencePieceModel::Kind::unused:
        return WithSpaces(model_->Text(piece));
      case SentencePieceModel::Kind::text:
        break;
    }
    const std::string text = model_->Text(piece);
    has_space_ = has_space_ || text == kSpaceMark;
    return WithSpaces(text);
  }

  std::string id_;
  std::unique_ptr<SentencePieceModel> model_;
  int32_t end_;
  bool lossless_ = false, adds_space_ = false, splits_at_spaces_ = false;
  bool has_space_ = false;          // a piece of its own: without one the library writes a space as the bytes of U+2581
  std::vector<std::string> texts_;  // of each token, decoded
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeSentencePieceTokenizer(const std::string& bytes, const std::string& name) {
  // Reasons quote pieces, which may be anything: one line of a bounded length tells it.
  const auto refuse = [&name](const std::string& reason) {
    throw UsageError("the tokenizer " + name + " cannot be used: " + Shown(reason, kLongestReason));
  };
  SentencePieceFile file;
  try {
    file = ReadSentencePieceFile(bytes);
    CheckNormalizationRules(file.normalization);
  } catch (const UsageError& error) {
    refuse(error.what());
  }
  std::string failure;
  std::unique_ptr<SentencePieceModel> model = OpenSentencePiece().Load(bytes, failure);
  if (!model) refuse("SentencePiece does not read it: " + failure);
  if (model->pieces() != file.pieces) refuse("it is damaged: its pieces are counted in two ways");
  const int32_t end = model->end_of_sentence();
  if (end < 0 || end >= model->pieces() || model->KindOf(end) != SentencePieceModel::Kind::control)
    refuse(
        "the model has no </s> piece, which ends a document; train one that has it (`ds-convert tokenizer` does, "
        "spm_train with --eos_id)");
  return std::make_unique<SentencePieceTokenizer>(bytes, file, std::move(model));
}

}  // namespace ds
