#include "runtime/generate/text_stream.h"

#include <algorithm>
#include <utility>

namespace ds {
namespace {

/// Bytes at the end of `text` that begin a UTF-8 character and do not complete it.
size_t Incomplete(const std::string& text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a character
    const size_t length = byte >= 0xF8 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string TextStream::Push(int32_t token) {
  held_ += tokenizer_.Decode(token);
  if (drop_space_ && !held_.empty()) {
    if (held_[0] == ' ') held_.erase(0, 1);
    drop_space_ = false;
  }
  std::string shown = held_.substr(0, held_.size() - Incomplete(held_));
  held_.erase(0, shown.size());
  return shown;
}

std::string TextStream::Finish() { return std::exchange(held_, {}); }

}  // namespace ds
