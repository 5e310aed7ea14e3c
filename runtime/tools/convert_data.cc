// ds-convert data: texts to token files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "runtime/base/error.h"
#include "runtime/data/prepare.h"
#include "runtime/tools/convert.h"

namespace ds {
namespace {

volatile std::sig_atomic_t interrupted = 0;

/// A line that is redrawn on a terminal; silence elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_ >= 0) std::fputs("\r\033[K", stderr);
  }
  void Show(int64_t done, int64_t total) {
    const int percent =
        total > 0 ? static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total)) : 100;
    if (!terminal_ || percent == shown_) return;
    shown_ = percent;
    std::fprintf(stderr, "\rtokenizing: %3d%% of %.1f MB", percent, static_cast<double>(total) / 1e6);
    std::fflush(stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  int shown_ = -1;
};

void Report(const PrepareResult& result) {
  for (const PrepareResult::Set& set : result.sets) {
    std::string files = set.files.front().string();
    if (set.files.size() > 1) files += " ... " + set.files.back().string();
    std::printf("%s: %lld tokens, %lld document%s in %zu file%s%s\n", files.c_str(), static_cast<long long>(set.tokens),
                static_cast<long long>(set.documents), set.documents == 1 ? "" : "s", set.files.size(),
                set.files.size() == 1 ? "" : "s",
                set.outcome == TokenFileWriter::Outcome::unchanged ? " (unchanged)" : "");
  }
  if (result.empty_documents > 0)
    std::printf("%lld empty documents passed over\n", static_cast<long long>(result.empty_documents));
}

void Run(PrepareOptions& options) {
  std::signal(SIGINT, [](int) { interrupted = SIGINT; });
  std::signal(SIGTERM, [](int) { interrupted = SIGTERM; });
  PrepareResult result;
  {
    ProgressLine line;
    options.progress = [&](int64_t done, int64_t total) {
      if (interrupted) throw Error(static_cast<ExitCode>(128 + interrupted), "interrupted; nothing was written");
      line.Show(done, total);
    };
    result = PrepareTokens(options);
  }
  Report(result);
}

}  // namespace

void AddDataCommand(CLI::App& app) {
  auto options = std::make_shared<PrepareOptions>();
  CLI::App* command = app.add_subcommand(
      "data",
      "Tokenizes texts into memory-mapped token files.\n\n"
      "Inputs: text (a file is a document), JSON lines (*.jsonl, *.ndjson: a line is a document) and folders of\n"
      "*.txt and JSON lines. They are streamed: size does not matter. Name the output in data.train of a job.\n\n"
      "Examples:\n"
      "  ds-convert data --input books/ --output data/books.tok\n"
      "  ds-convert data --input web.jsonl --field content --output web.tok --shard-tokens 1e9\n"
      "  ds-convert data --input web.jsonl --output web.tok --validation-fraction 0.01\n"
      "                  (makes web-train.tok and web-validation.tok)\n\n"
      "Run again with the same input it changes nothing. The format: docs/token-file.md.");
  command->add_option("--input,-i", options->inputs, "Text, JSON lines, or a folder of them; several may be named")
      ->required()
      ->expected(1, -1);
  command->add_option("--output,-o", options->output, "PREFIX.tok")->required();
  command->add_option("--tokenizer", options->tokenizer, "`bytes`: a token a byte, and one that ends a document")
      ->capture_default_str();
  command->add_option("--field", options->field, "The field of JSON lines that holds the text")->capture_default_str();
  auto shard_tokens = std::make_shared<double>(0);
  command->add_option("--shard-tokens", *shard_tokens,
                      "Cut into files of so many tokens: PREFIX-00000-of-00004.tok, ...");
  command->add_option("--validation-fraction", options->validation_fraction,
                      "Share of the documents, chosen by their text, that goes to PREFIX-validation.tok;\n"
                      "the rest to PREFIX-train.tok");
  command->add_flag("--force", options->force, "Replace files that are there and hold something else");
  command->callback([options, shard_tokens] {
    options->shard_tokens = static_cast<int64_t>(*shard_tokens);
    if (*shard_tokens < 0 || *shard_tokens > 0x1p62 || static_cast<double>(options->shard_tokens) != *shard_tokens)
      throw UsageError("--shard-tokens must be a whole number of tokens");
    Run(*options);
  });
}

}  // namespace ds
