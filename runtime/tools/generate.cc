// ds-generate: text from a checkpoint.
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/tokenizer.h"
#include "runtime/generate/language_model.h"
#include "runtime/generate/sampling.h"
#include "runtime/plan/manifest.h"
#include "runtime/tools/command_line.h"

namespace ds {
namespace {

struct Options {
  std::string checkpoint, prompt;
  int64_t tokens = 400;
  bool greedy = false;
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
  ::execv("/proc/self/exe", argv);  // where that fails, waiting is only slower
}

void Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw SystemError("cannot write the text", errno);
}

void Generate(Options options) {
  if (options.greedy) options.sampling.temperature = 0;
  Check(options.sampling);
  if (options.tokens <= 0) throw UsageError("--tokens must be positive");
  if (options.threads < 0) throw UsageError("--threads must not be negative");
  const std::filesystem::path folder = ResolveCheckpoint(options.checkpoint);
  LanguageModel model(folder, options.threads > 0 ? options.threads : AvailableCores());
  std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer(model.job().data.tokenizer);
  if (::isatty(STDERR_FILENO))
    std::fprintf(stderr, "%s: step %lld, %.1fM parameters, %lld tokens of context\n", folder.c_str(),
                 static_cast<long long>(model.step()), static_cast<double>(model.parameters()) / 1e6,
                 static_cast<long long>(model.context()));

  std::vector<int32_t> tokens;
  tokenizer->Encode(options.prompt, tokens);
  if (tokens.empty()) tokens.push_back(tokenizer->end_of_document());  // what stands before a document
  Print(options.prompt);
  for (int64_t i = 0; i < options.tokens; ++i) {
    // Tokens that only fill the vocabulary up are never drawn.
    std::span<const float> logits = model.Logits(tokens).first(static_cast<size_t>(tokenizer->vocabulary()));
    const int32_t token = SampleToken(logits, options.sampling, static_cast<int64_t>(tokens.size()));
    if (token == tokenizer->end_of_document()) break;
    tokens.push_back(token);
    Print(tokenizer->Decode(token));
  }
  Print("\n");
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
      "The same checkpoint, prompt, options and seed give the same text, on any number of threads. The text ends "
      "after\n"
      "--tokens tokens, or where the model ends the document.",
      "ds-generate");
  app.add_option("--checkpoint,-c", options.checkpoint, "A checkpoint, or a run's directory: its newest")->required();
  app.add_option("--prompt,-p", options.prompt, "What the text begins with; empty: the beginning of a document");
  app.add_option("--tokens,-n", options.tokens, "At most so many tokens")->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature,
                 "Below 1 likely tokens become likelier, above 1 less so; 0 is --greedy")
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "Draw from the K likeliest tokens; 0: from all")
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p,
                 "Draw from the likeliest tokens that together have this probability")
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "Another seed, another text")->capture_default_str();
  app.add_flag("--greedy", options.greedy, "Always the likeliest token");
  app.add_option("--threads", options.threads, "CPU threads; 0: all cores")->capture_default_str();
  app.callback([&] { ds::Generate(options); });
  return ds::RunCommandLine(app, argc, argv);
}
