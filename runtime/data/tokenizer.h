// Tokenizers: text to tokens and back. `bytes` is built in: a token a byte, and one that ends a document. Others are
// files: SentencePiece models, trained by `ds-convert tokenizer` or by another program. docs/tokenizers.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string id() const = 0;  ///< at most 40 bytes; what token files, job specs and checkpoints state
  virtual int64_t vocabulary() const = 0;
  virtual int32_t end_of_document() const = 0;
  /// Appends the tokens of `text`, a document or one of its parts (docs/token-file.md says where long documents are
  /// cut), to `tokens`; adds no end of document. Thread-safe: documents are tokenized side by side.
  virtual void Encode(std::string_view text, std::vector<int32_t>& tokens) const = 0;
  /// The bytes that one token adds to a text (not always whole characters); empty for the end of a document and for
  /// tokens outside the vocabulary.
  virtual std::string Decode(int32_t token) const = 0;
  /// Whether decoding the tokens of any bytes gives those bytes. False: a model that normalizes text in its own way.
  virtual bool lossless() const = 0;
  /// Whether Encode puts a space before a text: the first token of a text then decodes with one too many.
  virtual bool adds_space() const = 0;
};

/// The tokenizer that `data.tokenizer` names: `bytes`, or a SentencePiece model's file. Throws UsageError naming the
/// file and the reason: not there, no model or a damaged one, without a piece that ends documents.
std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name);

}  // namespace ds
