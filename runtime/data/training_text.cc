#include "runtime/data/training_text.h"

#include "runtime/base/checksum.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// Characters that the trainer has other uses for: U+2581 is a space, U+2585 a character outside the coverage.
bool IsReserved(std::string_view character) {
  return character[0] == '\0' || character == "\xE2\x96\x81" || character == "\xE2\x96\x85";
}

/// Where the sentence at the start of `text`, at most TrainingText::kMostBytes long, ends: behind its last line break,
/// else before its last space, else between two characters.
size_t SentenceEnd(std::string_view text) {
  if (text.size() <= TrainingText::kMostBytes) return text.size();
  const std::string_view most = text.substr(0, TrainingText::kMostBytes);
  if (const size_t line = most.rfind('\n'); line != most.npos && text[line + 1] != '\n') return line + 1;
  if (const size_t space = most.rfind(' '); space != most.npos && space > 0) return space;
  size_t end = most.size();
  while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

/// A rank that depends on text and place: equal sentences are not all kept or all left out.
uint64_t RankOf(std::string_view sentence, uint64_t place) {
  uint64_t rank = Checksum(sentence) ^ (place + 1) * 0x9E3779B97F4A7C15u;
  rank = (rank ^ rank >> 31) * 0xD6E8FEB86659FD93u;
  return rank ^ rank >> 32;
}

}  // namespace

void TrainingText::Text(std::string_view piece) {
  text_bytes_ += static_cast<int64_t>(piece.size());
  open_ += piece;
  while (open_.size() > 2 * kMostBytes) {
    // Whole blocks at a time: the rest is moved once for many sentences.
    size_t done = 0;
    while (open_.size() - done > 2 * kMostBytes) {
      const std::string_view rest = std::string_view(open_).substr(done);
      const size_t end = SentenceEnd(rest);
      Keep(rest.substr(0, end));
      done += end;
    }
    open_.erase(0, done);
  }
}

void TrainingText::EndDocument() {
  for (std::string_view rest = open_; !rest.empty();) {
    const size_t end = SentenceEnd(rest);
    Keep(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  open_.clear();
}

void TrainingText::Keep(std::string_view sentence) {
  const uint64_t rank = RankOf(sentence, count_++);
  if (rank > below_) return;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    if (end == begin) return;
    sentences_.emplace_back(sentence.substr(begin, end - begin));
    ranks_.push_back(rank);
    kept_bytes_ += static_cast<int64_t>(end - begin);
  };
  for (size_t at = 0; at < sentence.size();) {
    const size_t length = Utf8Length(sentence.substr(at));
    if (length == 0 || IsReserved(sentence.substr(at, length))) {
      add(at);
      begin = at + std::max<size_t>(1, length);
    }
    at += std::max<size_t>(1, length);
  }
  add(sentence.size());
  while (kept_bytes_ > limit_ && below_ > 0) Halve();
}

void TrainingText::Halve() {
  below_ /= 2;
  size_t kept = 0;
  kept_bytes_ = 0;
  for (size_t i = 0; i < sentences_.size(); ++i) {
    if (ranks_[i] > below_) continue;
    kept_bytes_ += static_cast<int64_t>(sentences_[i].size());
    if (kept != i) sentences_[kept] = std::move(sentences_[i]);
    ranks_[kept++] = ranks_[i];
  }
  sentences_.resize(kept);
  ranks_.resize(kept);
}

}  // namespace ds
