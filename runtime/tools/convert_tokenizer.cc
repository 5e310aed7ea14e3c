// ds-convert tokenizer: a SentencePiece model from texts.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/data/tokenizer_training.h"
#include "runtime/tools/command_line.h"
#include "runtime/tools/convert.h"

namespace ds {
namespace {

volatile std::sig_atomic_t interrupted = 0;

[[noreturn]] void ThrowInterrupted() {
  throw Error(static_cast<ExitCode>(128 + interrupted), "interrupted; nothing was written");
}

/// A line that is redrawn on a terminal; silence elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void Show(int64_t done, int64_t total) {
    if (!terminal_) return;
    const int percent = total > 0 && done >= 0 ? static_cast<int>(100 * done / total) : done < 0 ? 101 : 100;
    if (percent == shown_) return;
    shown_ = percent;
    if (done < 0)
      std::fprintf(stderr, "\r\033[Ktraining (minutes for 100 MB of text)");
    else
      std::fprintf(stderr, "\rreading: %3d%% of %.1f MB", percent, static_cast<double>(total) / 1e6);
    std::fflush(stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  int shown_ = -1;
};

void Run(TokenizerTrainingOptions& options) {
  OnInterrupt([](int signal) { interrupted = signal; });
  TokenizerTrainingResult result;
  {
    ProgressLine line;
    options.progress = [&](int64_t done, int64_t total) {
      if (interrupted) ThrowInterrupted();
      if (done < 0) {  // the library does not look up: a signal ends the program, and nothing is written yet
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
      }
      line.Show(done, total);
    };
    try {
      result = TrainTokenizer(options);
    } catch (const Error&) {
      if (interrupted) ThrowInterrupted();  // it may have ended the wait for a pipe
      throw;
    }
  }
  std::printf("%s: %lld pieces (%s), %s%s\n", options.output.c_str(), static_cast<long long>(result.vocabulary),
              options.type.c_str(), result.id.c_str(), result.unchanged ? " (unchanged)" : "");
  std::printf("trained on %lld of %lld bytes of text; %.2f bytes a token on them\n",
              static_cast<long long>(result.sample_bytes), static_cast<long long>(result.text_bytes),
              result.bytes_per_token);
}

int64_t WholeNumber(double value, const char* name) {
  if (!(value >= 0 && value <= 0x1p53) || value != static_cast<double>(static_cast<int64_t>(value)))
    throw UsageError(std::string(name) + " must be a whole number");
  return static_cast<int64_t>(value);
}

}  // namespace

void AddTokenizerCommand(CLI::App& app) {
  auto options = std::make_shared<TokenizerTrainingOptions>();
  CLI::App* command = app.add_subcommand(
      "tokenizer",
      "Trains a SentencePiece tokenizer on texts.\n\n"
      "The model is lossless: any bytes come back as they were. Characters without a piece become bytes, nothing is\n"
      "normalized, runs of spaces and line breaks stay. The piece </s> ends documents. Name the file in\n"
      "`ds-convert data --tokenizer` and in data.tokenizer of the job.\n\n"
      "Examples:\n"
      "  ds-convert tokenizer --input books/ --vocabulary 8000 --output data/books.model\n"
      "  ds-convert data --input books/ --tokenizer data/books.model --output data/books.tok\n\n"
      "The same texts and options give the same file. docs/tokenizers.md says more.");
  command
      ->add_option(
          "--input,-i", options->inputs,
          "Text, JSON lines, or a folder of them, gzip and Zstandard too; `-`: standard input;\nseveral may be named")
      ->required()
      ->expected(1, -1);
  command->add_option("--output,-o", options->output, "The model file to write")->required();
  auto vocabulary = std::make_shared<double>(0), sample = std::make_shared<double>(options->sample_bytes);
  command->add_option("--vocabulary,-v", *vocabulary, "Pieces, 258 for bytes and control among them")->required();
  command->add_option("--type", options->type, "bpe (byte-pair encoding) or unigram")
      ->check(CLI::IsMember({"bpe", "unigram"}))
      ->capture_default_str();
  auto format = std::make_shared<std::string>();
  command->add_option("--format", *format, "What texts are, whatever their names say; wanted with `-`")
      ->check(CLI::IsMember({"text", "jsonl"}));
  command->add_option("--field", options->field, "The field of JSON lines that holds the text")->capture_default_str();
  command
      ->add_option("--character-coverage", options->character_coverage,
                   "Share of the text whose characters get pieces of their own; rarer ones become bytes")
      ->capture_default_str();
  command->add_flag("--split-digits,!--no-split-digits", options->split_digits,
                    "Each digit is a token, so that numbers are read alike; on unless --no-split-digits");
  command
      ->add_option("--sample-bytes", *sample,
                   "Train on so much text at most, drawn from all of it; memory is some tens of times that")
      ->capture_default_str();
  command->add_flag("--force", options->force, "Replace the output where it exists and holds something else");
  command->callback([options, vocabulary, sample, format] {
    if (!format->empty()) options->format = *format == "jsonl" ? InputKind::json_lines : InputKind::text;
    options->vocabulary = WholeNumber(*vocabulary, "--vocabulary");
    options->sample_bytes = WholeNumber(*sample, "--sample-bytes");
    Run(*options);
  });
}

}  // namespace ds
