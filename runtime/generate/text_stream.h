// Tokens to text as they come: whole characters only, where tokens end inside one.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/data/tokenizer.h"

namespace ds {

class TextStream {
 public:
  /// `tokenizer` must outlive it. at_begin: the first token is a text's first; the space that the tokenizer puts before
  /// texts is then dropped.
  TextStream(const Tokenizer& tokenizer, bool at_begin)
      : tokenizer_(tokenizer), drop_space_(at_begin && tokenizer.adds_space()) {}

  /// What can be shown after `token`: everything but the bytes of a character that has begun. Bytes that are no UTF-8
  /// are passed on as they are.
  std::string Push(int32_t token);
  /// What is left: a character that was not completed.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool drop_space_;
  std::string held_;
};

}  // namespace ds
