// Texts to token files: what `ds-convert data` does.
//
// Two passes, both in bounded memory: units of the inputs are tokenized side by side, and their tokens kept in the
// order of the inputs (encode.h, conversion_work.h); then documents are copied to the token files (assemble.h). The
// output is a function of the inputs and the options alone, not of threads, interruptions or timing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/inputs.h"
#include "runtime/data/token_file.h"

namespace ds {

struct PrepareProgress {
  bool writing = false;  ///< the second pass: done and total are tokens; in the first, bytes of the inputs' files
  int64_t done = 0, total = 0;  ///< total -1: not known
};

struct PrepareOptions {
  std::vector<std::string> inputs;         ///< FindInputs says what they may be
  std::filesystem::path output;            ///< PREFIX.tok
  std::string tokenizer;                   ///< empty: `bytes`; for Megatron-LM's data, none: the ids are kept
  std::string field = "text";              ///< of JSON lines
  std::optional<InputKind> format;         ///< text or json_lines
  int64_t vocabulary = 0;                  ///< of Megatron-LM's ids where no tokenizer is named
  std::optional<int64_t> end_of_document;  ///< added to Megatron-LM's documents that do not end with it
  int threads = 0;                         ///< that tokenize; 0: one a core
  int64_t shard_tokens = 0;                ///< 0: one file
  std::optional<uint64_t> shuffle_seed;    ///< documents in an order drawn from it; absent: the inputs'
  /// > 0: this share of the documents goes to PREFIX-validation.tok, the rest to PREFIX-train.tok. Which, is decided by
  /// a document's text alone, so equal documents are on one side and a document stays there as the text grows.
  double validation_fraction = 0;
  bool force = false;                       ///< replace what is there
  int64_t piece_bytes = int64_t{64} << 20;  ///< text and tokens after which work counts as done
  /// Called often. May throw to stop: what was done is kept, and the same call goes on from there.
  std::function<void(const PrepareProgress&)> progress;
  std::function<void(const std::string&)> say;  ///< sentences for the user: what is taken up or discarded
};

struct PrepareResult {
  struct Set {
    std::vector<std::filesystem::path> files;
    TokenFileWriter::Outcome outcome = TokenFileWriter::Outcome::written;
    int64_t documents = 0, tokens = 0;
  };
  std::vector<Set> sets;        ///< one; with validation_fraction: train, validation
  int64_t empty_documents = 0;  ///< passed over
  int64_t input_files = 0;
  int64_t text_bytes = 0;  ///< of all documents, decompressed
};

/// Work in progress is in PREFIX.tok.partial and is taken up by the next call with the same options and inputs (path,
/// size and time of change), byte for byte as if it had not been interrupted. Threads, shards, split, order and force
/// may differ: they do not change the first pass. Standard input and pipes cannot be taken up. Throws UsageError: an
/// input or option is wrong, an output exists and holds something else; the work is kept then where the first pass was
/// done.
PrepareResult PrepareTokens(const PrepareOptions& options);

}  // namespace ds
