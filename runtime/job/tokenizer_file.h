// Tokenizer files, as far as they can be judged without the SentencePiece library: the launcher, which does not link
// it, checks a job's tokenizer with this, and everyone names tokenizers with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ds {

/// What a SentencePiece model's bytes say. The file is a Protocol Buffers message, ModelProto of SentencePiece's
/// sentencepiece_model.proto.
struct SentencePieceFile {
  int64_t pieces = 0;              ///< the vocabulary
  bool byte_fallback = false;      ///< characters without a piece become bytes
  bool adds_space = true;          ///< a space is put before each text
  bool removes_spaces = true;      ///< runs of spaces become one, those at the ends none
  bool escapes_spaces = true;      ///< a space is U+2581 inside pieces
  bool splits_at_spaces = true;    ///< no piece has a space behind another character
  std::string_view normalization;  ///< compiled rules, a view into the bytes; empty: none
};

/// Reads every field of a model, follows no rule of it. Throws UsageError with the reason alone ("it is empty"): what
/// cannot be a model that SentencePiece wrote.
SentencePieceFile ReadSentencePieceFile(std::string_view bytes);

/// What a tokenizer is known by: in token files, job specs and checkpoints.
struct TokenizerIdentity {
  std::string id;  ///< "bytes", or "sp-" and the XXH64 of the model file in 16 hexadecimal digits
  int64_t vocabulary = 0;
};

inline constexpr const char* kByteTokenizer = "bytes";
/// Its tokens: 256 values and the end of a document.
inline constexpr int64_t kByteVocabulary = 257;

/// The copy of a tokenizer file in a run's directory.
inline constexpr const char* kRunTokenizer = "tokenizer.model";

/// The identity of a SentencePiece model of these bytes.
std::string SentencePieceId(std::string_view bytes);

/// The bytes of a tokenizer file. Throws UsageError naming it: not there, not a regular file, not readable.
std::string ReadTokenizerFile(const std::string& path);

/// Of `bytes` or of the file `name`. Throws UsageError naming the file: not readable, no SentencePiece model.
TokenizerIdentity IdentifyTokenizer(const std::string& name);

}  // namespace ds
