// Texts to token files: what `ds-convert data` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/token_file.h"

namespace ds {

struct PrepareOptions {
  std::vector<std::string> inputs;  ///< texts, JSON lines, folders of them
  std::filesystem::path output;     ///< PREFIX.tok
  std::string tokenizer = "bytes";
  std::string field = "text";  ///< of JSON lines
  int64_t shard_tokens = 0;    ///< 0: one file
  /// > 0: this share of the documents goes to PREFIX-validation.tok, the rest to PREFIX-train.tok. Which, is decided by
  /// a document's text alone, so equal documents are on one side and a document stays there as the text grows.
  double validation_fraction = 0;
  bool force = false;  ///< replace what is there
  /// Called as input is read, with bytes done and in all. May throw to stop: nothing is left behind.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PrepareResult {
  struct Set {
    std::vector<std::filesystem::path> files;
    TokenFileWriter::Outcome outcome = TokenFileWriter::Outcome::written;
    int64_t documents = 0, tokens = 0;
  };
  std::vector<Set> sets;        ///< one; with validation_fraction: train, validation
  int64_t empty_documents = 0;  ///< passed over
  int64_t input_bytes = 0;
};

/// Streams the inputs into token files; memory does not depend on their size. Throws UsageError: an input is wrong, an
/// output exists and holds something else.
PrepareResult PrepareTokens(const PrepareOptions& options);

}  // namespace ds
