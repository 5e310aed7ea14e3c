// ds-convert data: texts to token files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "runtime/base/clock.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/number.h"
#include "runtime/base/signal.h"
#include "runtime/base/terminal.h"
#include "runtime/data/prepare.h"
#include "runtime/tools/command_line.h"
#include "runtime/tools/convert.h"

namespace ds {
namespace {

volatile std::sig_atomic_t interrupted = 0;

/// The first signal is seen at the next piece of input; a second one ends the program at once (nothing is lost: what
/// counts is on disk).
void Interrupt(int signal) {
  interrupted = signal;
  std::signal(signal, SIG_DFL);
}

[[noreturn]] void ThrowInterrupted() {
  throw Error(static_cast<ExitCode>(128 + interrupted), "interrupted by " + SignalName(interrupted));
}

std::string Megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1e9 ? "%.1f MB" : "%.2f GB", bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
  return text;
}

/// A line that is redrawn on a terminal, twice a second at most; silence elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void Show(const PrepareProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || (shown_ && now - shown_at_ < std::chrono::milliseconds(500))) return;
    if (!shown_ || progress.writing != writing_) {  // rates are of this run and pass
      began_ = now;
      done_before_ = progress.done;
      writing_ = progress.writing;
    }
    shown_ = true;
    shown_at_ = now;
    const double seconds = std::chrono::duration<double>(now - began_).count();
    const double rate = seconds > 0 ? static_cast<double>(progress.done - done_before_) / seconds : 0;
    std::fprintf(stderr, "\r%s\033[K", Text(progress, rate).c_str());
    std::fflush(stderr);
  }

 private:
  static std::string Text(const PrepareProgress& progress, double rate) {
    const double done = static_cast<double>(progress.done), total = static_cast<double>(progress.total);
    std::string text = progress.writing ? "writing" : "tokenizing";
    if (total > 0) {
      char percent[16];
      std::snprintf(percent, sizeof percent, ": %3.0f%%", 100 * done / total);
      text += percent;
    }
    if (!progress.writing) text += (total > 0 ? " of " : ": ") + Megabytes(total > 0 ? total : done);
    if (rate > 0 && !progress.writing) text += ", " + Megabytes(rate) + "/s";
    if (rate > 0 && total > 0) text += ", " + DurationText(std::max(0.0, total - done) / rate) + " left";
    return text;
  }

  bool terminal_ = IsTerminal(STDERR_FILENO), shown_ = false, writing_ = false;
  std::chrono::steady_clock::time_point began_, shown_at_;
  int64_t done_before_ = 0;
};

std::string Counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void Report(const PrepareResult& result, double seconds) {
  int64_t documents = 0, tokens = 0;
  for (const PrepareResult::Set& set : result.sets) {
    std::string files = set.files.front().string();
    if (set.files.size() > 1) files += " ... " + set.files.back().string();
    std::printf("%s: %lld tokens, %lld document%s in %zu file%s%s\n", files.c_str(), static_cast<long long>(set.tokens),
                static_cast<long long>(set.documents), set.documents == 1 ? "" : "s", set.files.size(),
                set.files.size() == 1 ? "" : "s",
                set.outcome == TokenFileWriter::Outcome::unchanged ? " (unchanged)" : "");
    documents += set.documents;
    tokens += set.tokens;
  }
  std::string line = "read " + Counted(result.input_files, "input") + ": " + Counted(documents, "document") + ", " +
                     Counted(tokens, "token");
  if (result.text_bytes > 0) {
    char ratio[64];
    std::snprintf(ratio, sizeof ratio, ", %.2f bytes a token",
                  static_cast<double>(result.text_bytes) / static_cast<double>(tokens));
    line += ", " + Counted(result.text_bytes, "byte") + " of text" + ratio;
  }
  if (result.empty_documents > 0) line += ", " + Counted(result.empty_documents, "empty document") + " passed over";
  std::printf("%s; %s\n", line.c_str(), DurationText(seconds).c_str());
}

void Run(PrepareOptions& options) {
  OnInterrupt(Interrupt);
  PrepareResult result;
  const auto began = std::chrono::steady_clock::now();
  {
    ProgressLine line;
    options.say = [](const std::string& sentence) { LogInfo(sentence); };
    options.progress = [&](const PrepareProgress& progress) {
      if (interrupted) ThrowInterrupted();
      line.Show(progress);
    };
    try {
      result = PrepareTokens(options);
    } catch (const Error&) {
      if (interrupted) ThrowInterrupted();  // it may have ended the wait for a pipe
      throw;
    }
  }
  Report(result, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
}

/// A whole number that may be written 1e9.
int64_t Whole(double value, const char* flag, const char* what) {
  if (!(value >= 0 && value <= 0x1p62) || static_cast<double>(static_cast<int64_t>(value)) != value)
    throw UsageError(std::string(flag) + " must be a whole number" + what);
  return static_cast<int64_t>(value);
}

int64_t Bytes(const std::string& text, const char* flag) { return AsBytes(FlagValue(text, flag)); }

}  // namespace

void AddDataCommand(CLI::App& app) {
  struct Arguments {
    PrepareOptions options;
    double shard_tokens = 0, vocabulary = 0, end_of_document = -1;
    std::string format, piece_bytes, shuffle_seed;
  };
  auto arguments = std::make_shared<Arguments>();
  PrepareOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "data",
      "Tokenizes texts into memory-mapped token files.\n\n"
      "Inputs: text (a file is a document), JSON lines (*.jsonl, *.ndjson: a line is a document), both also "
      "compressed\n"
      "(gzip, Zstandard), folders of *.txt and JSON lines with their subfolders (hidden ones are passed over), `-` "
      "for\n"
      "standard input, and Megatron-LM's PREFIX.idx with PREFIX.bin. They are streamed: size does not matter.\n"
      "Name the output in data.train of a job.\n\n"
      "Examples:\n"
      "  ds-convert data --input books/ --output data/books.tok\n"
      "  ds-convert data --input web.jsonl.zst --field content --output web.tok --shard-tokens 1e9\n"
      "  ds-convert data --input web.jsonl --output web.tok --validation-fraction 0.01 --shuffle-seed 1\n"
      "                  (makes web-train.tok and web-validation.tok)\n"
      "  zcat a.gz | ds-convert data --input - --format jsonl --field meta.text --output a.tok\n"
      "  ds-convert data --input corpus_text_document.idx --vocabulary 50257 --output corpus.tok\n\n"
      "Interrupted, the same command goes on where it was; run again after its end it changes nothing. The output "
      "does\n"
      "not depend on the number of threads. The format: docs/token-file.md.");
  command
      ->add_option("--input,-i", options.inputs,
                   "Text, JSON lines, a folder of them, Megatron-LM's PREFIX.idx, or - ; several may be named")
      ->required()
      ->expected(1, -1);
  command->add_option("--output,-o", options.output, "PREFIX.tok")->required();
  command->add_option(
      "--tokenizer", options.tokenizer,
      "What data.tokenizer names [bytes]: `bytes` (a token a byte, and one that ends a document) or a model file.\n"
      "Of Megatron-LM's data: the one that made its ids, which are kept");
  command
      ->add_option("--field", options.field,
                   "The field of JSON lines that holds the text; a dot leads into objects: meta.text")
      ->capture_default_str();
  command->add_option("--format", arguments->format, "What texts are, whatever their names say; wanted with `-`")
      ->check(CLI::IsMember({"text", "jsonl"}));
  command->add_option("--threads", options.threads, "Threads that tokenize [one a core]")->check(CLI::Range(1, 4096));
  command
      ->add_option("--shuffle-seed", arguments->shuffle_seed,
                   "Put the documents into an order drawn from this number; without it they stay in the input's")
      ->type_name("UINT");
  command->add_option("--shard-tokens", arguments->shard_tokens,
                      "Cut into files of so many tokens: PREFIX-00000-of-00004.tok, ...");
  command->add_option("--validation-fraction", options.validation_fraction,
                      "Share of the documents, chosen by their text, that goes to PREFIX-validation.tok;\n"
                      "the rest to PREFIX-train.tok");
  command->add_option("--vocabulary", arguments->vocabulary,
                      "Of Megatron-LM's ids where --tokenizer is not named: every id is below it");
  command->add_option(
      "--end-of-document", arguments->end_of_document,
      "The id to add to Megatron-LM's documents that do not end with it; without it they stay as they are");
  command->add_option("--piece-bytes", arguments->piece_bytes,
                      "Text and tokens after which work counts as done: what a crash may cost [64MiB]");
  command->add_flag("--force", options.force, "Replace files that are there and hold something else");
  command->callback([arguments, command] {
    PrepareOptions& options = arguments->options;
    options.shard_tokens = Whole(arguments->shard_tokens, "--shard-tokens", " of tokens");
    options.vocabulary = Whole(arguments->vocabulary, "--vocabulary", " of tokens");
    if (command->count("--vocabulary") > 0 && options.vocabulary == 0) throw UsageError("--vocabulary must not be 0");
    if (command->count("--end-of-document") > 0)
      options.end_of_document = Whole(arguments->end_of_document, "--end-of-document", ": a token's id");
    if (command->count("--shuffle-seed") > 0)
      options.shuffle_seed = AsUnsigned(FlagValue(arguments->shuffle_seed, "--shuffle-seed"));
    if (!arguments->piece_bytes.empty()) options.piece_bytes = Bytes(arguments->piece_bytes, "--piece-bytes");
    if (!arguments->format.empty())
      options.format = arguments->format == "jsonl" ? InputKind::json_lines : InputKind::text;
    Run(options);
  });
}

}  // namespace ds
