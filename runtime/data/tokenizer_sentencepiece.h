// Tokenizers that are SentencePiece models.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/tokenizer.h"

namespace ds {

/// The tokenizer of a model's bytes; `name` stands for the file in errors. Throws UsageError: see MakeTokenizer.
///
/// A model that neither normalizes, adds or removes anything and falls back to bytes, as those of `ds-convert
/// tokenizer` do, is lossless: what the library cannot give back (bytes that are no UTF-8, and U+2581, which stands for
/// a space inside pieces) becomes the model's byte tokens. With other models a text is what the library makes of it.
std::unique_ptr<Tokenizer> MakeSentencePieceTokenizer(const std::string& bytes, const std::string& name);

}  // namespace ds
