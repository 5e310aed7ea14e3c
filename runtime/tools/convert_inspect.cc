// ds-convert inspect, verify: what a token file or a checkpoint holds, and whether its bytes are whole.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/error.h"
#include "runtime/data/inputs.h"
#include "runtime/data/megatron.h"
#include "runtime/data/token_file.h"
#include "runtime/tools/convert.h"
#include "runtime/tools/convert_checkpoint.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

long long Long(int64_t value) { return value; }

std::vector<DataInput> TokenFiles(const std::string& path) {
  std::vector<DataInput> files = FindInputs({path});
  for (const DataInput& input : files)
    if (input.kind != InputKind::tokens && input.kind != InputKind::megatron)
      throw UsageError(input.path.string() +
                       " is neither a token file (*.tok), nor an index of Megatron-LM (*.idx), nor a checkpoint");
  return files;
}

void InspectMegatron(const fs::path& path) {
  const MegatronData data(path);
  std::printf("%s: Megatron-LM's, %lld tokens of %s, %lld document%s, %lld sequences\n", path.c_str(),
              Long(data.index().tokens()), data.index().dtype(), Long(data.index().documents()),
              data.index().documents() == 1 ? "" : "s", Long(data.index().sequences()));
}

/// The index and both files' sizes; that every id could be a token.
void VerifyMegatron(const fs::path& path) {
  const MegatronData data(path);
  std::vector<int32_t> block(1 << 16);
  const int64_t size = static_cast<int64_t>(block.size()), tokens = data.index().tokens();
  for (int64_t at = 0; at < tokens; at += size) data.Read(at, std::min(size, tokens - at), INT32_MAX, block.data());
}

void InspectTokens(const std::vector<DataInput>& files) {
  int64_t tokens = 0, documents = 0;
  for (const auto& [path, kind, stream] : files) {
    if (kind == InputKind::megatron) {
      InspectMegatron(path);
      continue;
    }
    const TokenFileInfo info = TokenFile(path).info();
    std::printf("%s: shard %u of %u, %lld tokens of %u bytes, %lld document%s, tokenizer %s, vocabulary %lld\n",
                path.c_str(), info.shard, info.shards, Long(info.tokens), info.token_bytes, Long(info.documents),
                info.documents == 1 ? "" : "s", info.tokenizer.c_str(), Long(info.vocabulary));
    tokens += info.tokens;
    documents += info.documents;
  }
  if (files.size() > 1 && tokens > 0)
    std::printf("%zu files: %lld tokens, %lld document%s\n", files.size(), Long(tokens), Long(documents),
                documents == 1 ? "" : "s");
}

void Inspect(const std::string& path) {
  const std::optional<CheckpointPath> checkpoints = FindCheckpoints(path);
  if (checkpoints)
    InspectCheckpoints(*checkpoints);
  else
    InspectTokens(TokenFiles(path));
}

void Verify(const std::string& path) {
  const std::optional<CheckpointPath> checkpoints = FindCheckpoints(path);
  if (checkpoints) return VerifyCheckpoints(*checkpoints);
  for (const DataInput& file : TokenFiles(path)) {
    if (file.kind == InputKind::megatron)
      VerifyMegatron(file.path);
    else
      TokenFile(file.path).Verify();
    std::printf("%s: whole\n", file.path.c_str());
  }
}

void AddPathCommand(CLI::App& app, const std::string& name, const std::string& help, void (*run)(const std::string&)) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(name, help);
  command
      ->add_option("path", *path,
                   "A token file (or PREFIX.tok of a set, or a folder), a checkpoint, a folder of checkpoints,\n"
                   "a run's directory or a job's")
      ->required();
  command->callback([path, run] { run(*path); });
}

}  // namespace

void AddInspectCommand(CLI::App& app) {
  AddPathCommand(
      app, "inspect",
      "Shows what a token file or a checkpoint holds. Of a run: its checkpoints, and what the newest holds.\n\n"
      "Examples:\n"
      "  ds-convert inspect data/kjv/train.tok\n"
      "  ds-convert inspect runs/quickstart/latest",
      Inspect);
}

void AddVerifyCommand(CLI::App& app) {
  AddPathCommand(
      app, "verify",
      "Reads every byte of a token file or a checkpoint and checks it; of a run, or a folder of checkpoints,\n"
      "every one. Exit code 0: all whole; 1: the damaged file and the reason are told.\n\n"
      "Examples:\n"
      "  ds-convert verify data/web.tok\n"
      "  ds-convert verify runs/quickstart/latest/checkpoints/step-200\n"
      "  ds-convert verify runs/quickstart/latest",
      Verify);
}

}  // namespace ds
