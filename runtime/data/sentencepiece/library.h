// The SentencePiece library (Kudo, Richardson 2018) behind an interface of our own, in a shared library of its own,
// libds_sentencepiece.so, that is opened when the first tokenizer file is.
//
// Why not linked: Debian's libsentencepiece exports the copy of Protocol Buffers that it was built with. In one process
// with another version, which the control plane's messages use in ds-worker, calls of either would land in the other.
// Opened at run time, each keeps to its own.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// A loaded model. Thread-safe.
class SentencePieceModel {
 public:
  enum class Kind { text, unused, unknown, control, byte };  ///< unused: no text ever becomes it

  virtual ~SentencePieceModel() = default;
  virtual int32_t pieces() const = 0;
  virtual int32_t end_of_sentence() const = 0;  ///< </s>; -1: the model has none
  virtual Kind KindOf(int32_t piece) const = 0;
  /// As it stands in the model: with U+2581 for a space; of a byte "<0x0A>".
  virtual std::string Text(int32_t piece) const = 0;
  /// Appends the pieces of `text`. Returns why it failed; empty: it did not.
  virtual std::string Encode(std::string_view text, std::vector<int32_t>& pieces) const = 0;
};

class SentencePieceLibrary {
 public:
  virtual ~SentencePieceLibrary() = default;
  /// Null, and why in `failure`: not a model that the library reads.
  virtual std::unique_ptr<SentencePieceModel> Load(std::string_view bytes, std::string& failure) const = 0;
  /// A model's bytes, trained on `sentences`; `settings` by the names of the library's trainer_spec and
  /// normalizer_spec. Empty, and why in `failure`: it could not.
  virtual std::string Train(const std::map<std::string, std::string>& settings,
                            const std::vector<std::string>& sentences, std::string& failure) const = 0;
};

/// The library, opened by the first call and kept. Thread-safe. Throws RuntimeError: libds_sentencepiece.so is not
/// beside the program, or cannot be loaded, and why.
const SentencePieceLibrary& OpenSentencePiece();

}  // namespace ds
