// The text that a tokenizer is trained on: documents cut into sentences, of which a sample that fits the memory is
// kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/text_source.h"

namespace ds {

/// Which sentences are kept depends on their text, their order and the limit alone: each has a checksum, and as the
/// limit is reached the half with the higher ones goes, from what is kept and from what comes.
class TrainingText : public DocumentSink {
 public:
  explicit TrainingText(int64_t limit_bytes) : limit_(limit_bytes) {}

  void BeginDocument() override {}
  void Text(std::string_view piece) override;
  void EndDocument() override;
  void Progress(int64_t done) override {
    if (progress) progress(done);
  }

  /// In the order of the text; none longer than kMostBytes, none with bytes that are no UTF-8, or with characters that
  /// the trainer reserves (U+0000, U+2581, U+2585): a sentence ends before those.
  const std::vector<std::string>& sentences() const { return sentences_; }
  int64_t kept_bytes() const { return kept_bytes_; }
  int64_t text_bytes() const { return text_bytes_; }

  static constexpr size_t kMostBytes = 4096;
  std::function<void(int64_t)> progress;

 private:
  void Keep(std::string_view sentence);
  void Halve();

  int64_t limit_, kept_bytes_ = 0, text_bytes_ = 0;
  std::string open_;  // of the document, not yet cut
  uint64_t count_ = 0, below_ = UINT64_MAX;
  std::vector<std::string> sentences_;
  std::vector<uint64_t> ranks_;  // of the sentences; those up to below_ are kept
};

}  // namespace ds
