#include "runtime/data/dataset.h"

#include <algorithm>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/data/megatron.h"
#include "runtime/data/text_source.h"
#include "runtime/data/token_file.h"
#include "runtime/data/tokenizer.h"

namespace ds {
namespace {

/// Token files up to this size have their checksum verified when they are opened; larger ones would delay the start of
/// every rank: `ds-convert verify` reads those.
constexpr int64_t kVerifyOnOpenBytes = int64_t{64} << 20;

/// A run of tokens of the stream.
class Piece {
 public:
  virtual ~Piece() = default;
  virtual int64_t tokens() const = 0;
  virtual void Read(int64_t begin, int64_t count, int32_t* out) const = 0;
  /// Differs where the tokens do.
  virtual uint64_t identity() const = 0;
  /// Whether it has the ids of data.tokenizer, and so its end of document.
  virtual bool of_tokenizer() const { return true; }
};

class FilePiece : public Piece {
 public:
  explicit FilePiece(const std::filesystem::path& path) : file_(path) {
    if (file_.info().tokens * file_.info().token_bytes <= kVerifyOnOpenBytes) file_.VerifyChecksum();
  }
  int64_t tokens() const override { return file_.info().tokens; }
  void Read(int64_t begin, int64_t count, int32_t* out) const override { file_.Read(begin, count, out); }
  uint64_t identity() const override { return file_.info().payload; }
  bool of_tokenizer() const override { return file_.info().tokenizer != kIdsTokenizer; }
  const TokenFileInfo& info() const { return file_.info(); }

 private:
  TokenFile file_;
};

/// Megatron-LM's ids, read from its files.
class MegatronPiece : public Piece {
 public:
  MegatronPiece(const std::filesystem::path& index, int64_t vocabulary) : data_(index), vocabulary_(vocabulary) {}
  int64_t tokens() const override { return data_.index().tokens(); }
  void Read(int64_t begin, int64_t count, int32_t* out) const override { data_.Read(begin, count, vocabulary_, out); }
  uint64_t identity() const override { return data_.Identity(); }
  bool of_tokenizer() const override { return false; }

 private:
  MegatronData data_;
  int64_t vocabulary_;
};

/// Text tokenized in memory; T: a type as wide as the vocabulary needs.
template <class T>
class TextPiece : public Piece, private DocumentSink {
 public:
  TextPiece(const DataInput& input, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    ReadDocuments(input, "text", *this);
    tokens_.shrink_to_fit();
  }
  int64_t tokens() const override { return static_cast<int64_t>(tokens_.size()); }
  void Read(int64_t begin, int64_t count, int32_t* out) const override {
    std::copy_n(tokens_.begin() + begin, count, out);
  }
  uint64_t identity() const override {
    return Checksum({reinterpret_cast<const char*>(tokens_.data()), tokens_.size() * sizeof(T)});
  }

 private:
  void BeginDocument() override {}
  void Text(std::string_view part) override {
    encoded_.clear();
    tokenizer_.Encode(part, encoded_);
    tokens_.insert(tokens_.end(), encoded_.begin(), encoded_.end());
  }
  void EndDocument() override { tokens_.push_back(static_cast<T>(tokenizer_.end_of_document())); }

  const Tokenizer& tokenizer_;  // of the constructor's caller; used there alone
  std::vector<int32_t> encoded_;
  std::vector<T> tokens_;
};

class TokenDataset : public Dataset {
 public:
  /// unknown_ids: the first file whose pieces are not of the tokenizer; empty: there is none.
  TokenDataset(std::vector<std::unique_ptr<Piece>> pieces, int64_t sequence_length, int64_t vocabulary,
               int32_t end_of_document, const std::string& unknown_ids)
      : pieces_(std::move(pieces)),
        sequence_length_(sequence_length),
        vocabulary_(vocabulary),
        end_of_document_(end_of_document),
        unknown_ids_(unknown_ids) {
    int64_t end = 0;
    for (const auto& piece : pieces_) ends_.push_back(end += piece->tokens());
  }
  int64_t tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  int64_t samples() const override { return std::max<int64_t>(0, tokens() - 1) / sequence_length_; }
  int64_t vocabulary() const override { return vocabulary_; }
  int32_t end_of_document() const override {
    if (unknown_ids_.empty()) return end_of_document_;
    throw UsageError(unknown_ids_ +
                     " has ids of a tokenizer that is not known, so that none is known to end a document; make it with "
                     "`ds-convert data --tokenizer`, which states the tokenizer");
  }
  std::string identity() const override {
    std::string pieces;
    for (const auto& piece : pieces_) {
      const uint64_t numbers[] = {static_cast<uint64_t>(piece->tokens()), piece->identity()};
      pieces.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    }
    return std::to_string(tokens()) + " tokens in samples of " + std::to_string(sequence_length_) + ", xxh64 " +
           ChecksumText(Checksum(pieces));
  }

  void Read(int64_t index, int32_t* out) const override {
    if (index < 0 || index >= samples())
      throw RuntimeError("sample " + std::to_string(index) + " of " + std::to_string(samples()));
    int64_t at = index * sequence_length_, left = sequence_length_ + 1;
    size_t piece = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    for (; left > 0; ++piece) {
      const int64_t count = std::min(left, ends_[piece] - at);
      pieces_[piece]->Read(at - (piece ? ends_[piece - 1] : 0), count, out);
      at += count;
      out += count;
      left -= count;
    }
  }

 private:
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::vector<int64_t> ends_;  // of each piece, in the stream
  int64_t sequence_length_, vocabulary_;
  int32_t end_of_document_;
  std::string unknown_ids_;
};

std::unique_ptr<Piece> OpenTokens(const std::filesystem::path& path, const Tokenizer& tokenizer, int64_t vocabulary) {
  auto piece = std::make_unique<FilePiece>(path);
  const TokenFileInfo& info = piece->info();
  if (info.tokenizer == kIdsTokenizer) {
    if (info.vocabulary > vocabulary)
      throw UsageError(path.string() + " has a vocabulary of " + std::to_string(info.vocabulary) +
                       ", model.vocabulary is " + std::to_string(vocabulary) + "; set it to that or more");
    return piece;
  }
  if (info.tokenizer != tokenizer.id())
    throw UsageError(path.string() + " was made with the tokenizer `" + info.tokenizer + "`, data.tokenizer is `" +
                     tokenizer.id() + "`");
  if (info.vocabulary > tokenizer.vocabulary())
    throw UsageError(path.string() + " has a vocabulary of " + std::to_string(info.vocabulary) + ", its tokenizer of " +
                     std::to_string(tokenizer.vocabulary()));
  return piece;
}

std::unique_ptr<Piece> OpenPiece(const DataInput& input, const Tokenizer& tokenizer, int64_t vocabulary) {
  if (input.kind == InputKind::tokens) return OpenTokens(input.path, tokenizer, vocabulary);
  if (input.kind == InputKind::megatron) return std::make_unique<MegatronPiece>(input.path, vocabulary);
  if (tokenizer.vocabulary() <= 65536) return std::make_unique<TextPiece<uint16_t>>(input, tokenizer);
  return std::make_unique<TextPiece<int32_t>>(input, tokenizer);
}

}  // namespace

std::unique_ptr<Dataset> OpenDataset(const std::vector<std::string>& paths, const std::string& tokenizer_name,
                                     int64_t sequence_length, int64_t vocabulary) {
  if (paths.empty()) throw UsageError("no data: name texts or token files in data.train");
  if (sequence_length <= 0) throw UsageError("data.sequence_length must be positive");
  std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(tokenizer_name);
  if (tokenizer->vocabulary() > vocabulary)
    throw UsageError("the tokenizer `" + tokenizer_name + "` has " + std::to_string(tokenizer->vocabulary()) +
                     " tokens, model.vocabulary is " + std::to_string(vocabulary) + "; set model.vocabulary to " +
                     std::to_string(tokenizer->vocabulary()) + " or more");
  std::vector<std::unique_ptr<Piece>> pieces;
  std::string unknown_ids;
  try {
    for (const DataInput& input : FindInputs(paths)) {
      std::unique_ptr<Piece> piece = OpenPiece(input, *tokenizer, vocabulary);
      if (unknown_ids.empty() && !piece->of_tokenizer()) unknown_ids = input.path.string();
      if (piece->tokens() > 0) pieces.push_back(std::move(piece));
    }
  } catch (const RuntimeError& error) {  // what the job names is wrong: its user's to mend
    throw UsageError(error.what());
  }
  auto dataset = std::make_unique<TokenDataset>(std::move(pieces), sequence_length, vocabulary,
                                                tokenizer->end_of_document(), unknown_ids);
  if (dataset->samples() == 0)
    throw UsageError(paths[0] + (paths.size() > 1 ? " and the other files hold " : " holds ") +
                     std::to_string(dataset->tokens()) + " tokens; one sample needs " +
                     std::to_string(sequence_length + 1) + " (data.sequence_length + 1)");
  return dataset;
}

}  // namespace ds
