// ds-generate: text from a checkpoint.
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/base/process.h"
#include "runtime/generate/find_tokenizer.h"
#include "runtime/generate/language_model.h"
#include "runtime/generate/sampling.h"
#include "runtime/generate/text_stream.h"
#include "runtime/plan/manifest.h"
#include "runtime/tools/command_line.h"

namespace ds {
namespace {

struct Options {
  std::string checkpoint, prompt, prompt_file, tokenizer, seed = "0";
  int64_t tokens = 400, samples = 1;
  bool greedy = false, no_cache = false, timing = false;
  int threads = 0;
  SamplingOptions sampling;
};

int AvailableCores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

/// OpenMP's threads spin while they wait, which on shared cores makes a token take ten times as long. The library reads
/// its policy before main runs, so the program starts itself again with a better one, once.
void WaitPassively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv(ExecutablePath().c_str(), argv);  // where that fails, waiting is only slower
}

void Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw SystemError("cannot write the text", errno);
}

std::string ReadPrompt(const Options& options) {
  if (options.prompt_file.empty()) return options.prompt;
  if (!options.prompt.empty()) throw UsageError("--prompt and --prompt-file: write one of them");
  try {
    return ReadFile(options.prompt_file == "-" ? "/dev/stdin" : options.prompt_file);
  } catch (const RuntimeError& error) {
    throw UsageError(std::string("--prompt-file: ") + error.what());
  }
}

/// What one text took.
struct Timing {
  int64_t prompt_tokens = 0, tokens = 0;
  double prompt_seconds = 0, seconds = 0;  ///< to the first token, and from there on
};

Timing WriteText(LanguageModel& model, const Tokenizer& tokenizer, const Options& options, const std::string& prompt) {
  using Clock = std::chrono::steady_clock;
  std::vector<int32_t> tokens;
  tokenizer.Encode(prompt, tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());  // what stands before a document
  Timing timing;
  timing.prompt_tokens = static_cast<int64_t>(tokens.size());
  TextStream stream(tokenizer, prompt.empty());
  Print(prompt);
  const auto begin = Clock::now();
  auto first = begin;
  for (; timing.tokens < options.tokens; ++timing.tokens) {
    // Tokens that only fill the vocabulary up are never drawn.
    std::span<const float> logits = model.Logits(tokens).first(static_cast<size_t>(tokenizer.vocabulary()));
    const int32_t token = SampleToken(logits, options.sampling, static_cast<int64_t>(tokens.size()));
    if (timing.tokens == 0) first = Clock::now();
    if (token == tokenizer.end_of_document()) break;
    tokens.push_back(token);
    Print(stream.Push(token));
  }
  Print(stream.Finish() + "\n");
  timing.prompt_seconds = std::chrono::duration<double>(first - begin).count();
  timing.seconds = std::chrono::duration<double>(Clock::now() - first).count();
  return timing;
}

void Check(const Options& options) {
  Check(options.sampling);
  if (options.tokens <= 0) throw UsageError("--tokens must be positive");
  if (options.samples <= 0) throw UsageError("--samples must be positive");
  if (options.threads < 0) throw UsageError("--threads must not be negative");
}

void Generate(Options options) {
  options.sampling.seed = AsUnsigned(FlagValue(options.seed, "--seed"));
  if (options.greedy) options.sampling.temperature = 0;
  Check(options);
  const std::string prompt = ReadPrompt(options);
  const std::filesystem::path folder = ResolveCheckpoint(options.checkpoint);
  LanguageModel model(folder, options.threads > 0 ? options.threads : AvailableCores());
  model.KeepCache(!options.no_cache);
  const std::unique_ptr<Tokenizer> tokenizer = FindTokenizer(model.job(), folder, options.tokenizer);
  const bool tell = options.timing || ::isatty(STDERR_FILENO);
  if (tell)
    std::fprintf(stderr, "%s: step %lld, %.1fM parameters, %lld tokens of context (cache %.1f MB), tokenizer %s\n",
                 folder.c_str(), static_cast<long long>(model.step()), static_cast<double>(model.parameters()) / 1e6,
                 static_cast<long long>(model.context()), static_cast<double>(model.cache_bytes()) / 1e6,
                 tokenizer->id().c_str());
  Timing all;
  for (int64_t i = 0; i < options.samples; ++i) {
    if (options.samples > 1)
      Print("--- sample " + std::to_string(i + 1) + " of " + std::to_string(options.samples) + ", seed " +
            std::to_string(options.sampling.seed) + "\n");
    const Timing one = WriteText(model, *tokenizer, options, prompt);
    all.prompt_tokens = one.prompt_tokens;
    all.tokens += one.tokens;
    all.prompt_seconds += one.prompt_seconds;
    all.seconds += one.seconds;
    ++options.sampling.seed;
  }
  if (!tell) return;
  const int64_t timed = std::max<int64_t>(0, all.tokens - options.samples);  // behind the first of each text
  std::fprintf(stderr, "%lld tokens, %.1f tokens/s; prompt of %lld tokens in %.3f s\n",
               static_cast<long long>(all.tokens), all.seconds > 0 ? static_cast<double>(timed) / all.seconds : 0.0,
               static_cast<long long>(all.prompt_tokens), all.prompt_seconds);
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  ds::WaitPassively(argv);
  ds::Options options;
  CLI::App app(
      "Writes text with a trained model: the prompt, and what the model goes on with, as it is made.\n\n"
      "Example:\n"
      "  ds-generate --checkpoint runs/quickstart/latest --prompt 'And God said'\n\n"
      "The same checkpoint, prompt, options and seed give the same text, on any number of threads. The text ends\n"
      "after --tokens tokens, or where the model ends the document. A text longer than the model's context goes on\n"
      "from its last tokens: the window moves by half a context whenever it is full.",
      "ds-generate");
  app.add_option("--checkpoint,-c", options.checkpoint, "A checkpoint, or a run's directory: its newest")->required();
  app.add_option("--prompt,-p", options.prompt, "What the text begins with; empty: the beginning of a document");
  app.add_option("--prompt-file", options.prompt_file, "The same from a file; `-`: from standard input");
  app.add_option("--tokenizer", options.tokenizer,
                 "The tokenizer's file, where neither the run's directory nor the job's path has it");
  app.add_option("--samples", options.samples, "So many texts, with seeds S, S + 1, ... (--seed S)")
      ->capture_default_str();
  app.add_option("--tokens,-n", options.tokens, "At most so many tokens")->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature,
                 "Below 1 likely tokens become likelier, above 1 less so; 0 is --greedy")
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "Draw from the K likeliest tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p,
                 "Draw from the likeliest tokens that together have this probability")
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Another seed, another text")->type_name("UINT")->capture_default_str();
  app.add_flag("--greedy", options.greedy, "Always the likeliest token");
  app.add_flag("--no-cache", options.no_cache,
               "Compute the whole window for every token: the same text, slowly; for comparison");
  app.add_flag("--timing", options.timing, "Tell the speed on standard error, where that is no terminal too");
  app.add_option("--threads", options.threads, "CPU threads; 0: all cores")->capture_default_str();
  app.callback([&] { ds::Generate(options); });
  return ds::RunCommandLine(app, argc, argv);
}
