// Training of SentencePiece tokenizers: what `ds-convert tokenizer` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/inputs.h"

namespace ds {

struct TokenizerTrainingOptions {
  std::vector<std::string> inputs;     ///< texts, JSON lines, folders of them, "-"; compressed or not
  std::optional<InputKind> format;     ///< text or json_lines: what inputs are, whatever their names say
  std::filesystem::path output;        ///< the model's file
  int64_t vocabulary = 0;              ///< pieces, 256 bytes and 2 control pieces among them
  std::string type = "bpe";            ///< or "unigram"
  std::string field = "text";          ///< of JSON lines
  double character_coverage = 0.9995;  ///< share of the text whose characters get pieces; others become bytes
  bool split_digits = true;            ///< no piece has two digits
  int64_t sample_bytes = 100'000'000;  ///< trains on so much text at most, drawn from all of it
  bool force = false;                  ///< replace what is there
  /// Called as input is read, with bytes done and in all; then once with done < 0: training begins, which takes long
  /// and cannot be stopped from here. May throw to stop: nothing is left behind.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct TokenizerTrainingResult {
  std::string id;
  int64_t vocabulary = 0;
  int64_t text_bytes = 0, sample_bytes = 0;  ///< of all documents; of what it was trained on
  double bytes_per_token = 0;                ///< on what it was trained on, the first megabyte of it
  bool unchanged = false;                    ///< the output held exactly this
};

/// Trains a lossless tokenizer (runtime/data/tokenizer.h) and writes it in one step. Same inputs and options: same
/// bytes, on any machine with this version of the library. Memory: some tens of times the sample. Throws UsageError: an
/// input is wrong, an option out of range, the vocabulary too small for the text's characters or too large for the
/// text, the output exists and holds something else.
TokenizerTrainingResult TrainTokenizer(const TokenizerTrainingOptions& options);

}  // namespace ds
