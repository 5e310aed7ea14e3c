// ds-convert inspect, verify: what a token file or a checkpoint holds, and whether its bytes are whole.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/inputs.h"
#include "runtime/data/token_file.h"
#include "runtime/plan/manifest.h"
#include "runtime/tools/convert.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

long long Long(int64_t value) { return value; }

std::vector<fs::path> TokenFiles(const std::string& path) {
  std::vector<fs::path> files;
  for (const DataInput& input : FindInputs({path})) {
    if (input.kind != InputKind::tokens)
      throw UsageError(input.path.string() + " is neither a token file (*.tok) nor a checkpoint");
    files.push_back(input.path);
  }
  return files;
}

/// The folder of a checkpoint, where `path` is one or is a run's directory; empty: it is not about checkpoints.
fs::path CheckpointFolder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {};
  if (fs::exists(fs::path(path) / "manifest.json", error) || fs::path(path).filename().string().starts_with("step-"))
    return path;
  std::vector<CheckpointEntry> entries = ListCheckpoints(fs::path(path) / "checkpoints");
  return entries.empty() ? fs::path() : entries.front().folder;
}

std::string Time(int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

void InspectCheckpoint(const fs::path& folder) {
  const Manifest manifest = ReadManifest(folder);
  const TrainingState& state = manifest.training;
  int64_t bytes = 0, elements = 0;
  for (const ManifestFile& file : manifest.files) bytes += file.bytes;
  for (const auto& [name, shape] : manifest.parameters) elements += shape.numel();
  std::printf("checkpoint %s\n", folder.c_str());
  std::printf("  written      %s by %d rank%s\n", Time(manifest.written_ns).c_str(), manifest.ranks,
              manifest.ranks == 1 ? "" : "s");
  std::printf("  step         %lld (%lld optimizer steps, %lld samples, %lld tokens)\n", Long(state.step),
              Long(state.optimizer_steps), Long(state.samples), Long(state.tokens));
  std::printf("  loss         %.6g\n", state.final_loss);
  std::printf("  files        %zu, %.1f MB\n", manifest.files.size(), static_cast<double>(bytes) / 1e6);
  std::printf("  parameters   %zu, %lld elements\n", manifest.parameters.size(), Long(elements));
  for (const auto& [name, shape] : manifest.parameters)
    std::printf("    %-48s %s\n", name.c_str(), shape.str().c_str());
}

void InspectTokens(const std::vector<fs::path>& files) {
  int64_t tokens = 0, documents = 0;
  for (const fs::path& path : files) {
    const TokenFileInfo info = TokenFile(path).info();
    std::printf("%s: shard %u of %u, %lld tokens of %u bytes, %lld document%s, tokenizer %s, vocabulary %lld\n",
                path.c_str(), info.shard, info.shards, Long(info.tokens), info.token_bytes, Long(info.documents),
                info.documents == 1 ? "" : "s", info.tokenizer.c_str(), Long(info.vocabulary));
    tokens += info.tokens;
    documents += info.documents;
  }
  if (files.size() > 1)
    std::printf("%zu files: %lld tokens, %lld document%s\n", files.size(), Long(tokens), Long(documents),
                documents == 1 ? "" : "s");
}

void Inspect(const std::string& path) {
  const fs::path folder = CheckpointFolder(path);
  if (folder.empty())
    InspectTokens(TokenFiles(path));
  else
    InspectCheckpoint(folder);
}

void VerifyOneCheckpoint(const fs::path& folder) {
  const Manifest manifest = VerifyCheckpoint(folder);
  int64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    SafetensorsFile opened(folder / file.name);  // its own header agrees with its bytes
    bytes += file.bytes;
  }
  std::printf("%s: whole (%zu files, %.1f MB)\n", folder.c_str(), manifest.files.size(),
              static_cast<double>(bytes) / 1e6);
}

void Verify(const std::string& path) {
  const fs::path folder = CheckpointFolder(path);
  if (!folder.empty()) return VerifyOneCheckpoint(folder);
  for (const fs::path& file : TokenFiles(path)) {
    TokenFile(file).Verify();
    std::printf("%s: whole\n", file.c_str());
  }
}

void AddPathCommand(CLI::App& app, const std::string& name, const std::string& help, void (*run)(const std::string&)) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("path", *path, "A token file (or PREFIX.tok of a set, or a folder), a checkpoint or a run")
      ->required();
  command->callback([path, run] { run(*path); });
}

}  // namespace

void AddInspectCommand(CLI::App& app) {
  AddPathCommand(app, "inspect",
                 "Shows what a token file or a checkpoint holds.\n\n"
                 "Examples:\n"
                 "  ds-convert inspect data/kjv/train.tok\n"
                 "  ds-convert inspect runs/quickstart/latest/checkpoints/latest",
                 Inspect);
}

void AddVerifyCommand(CLI::App& app) {
  AddPathCommand(app, "verify",
                 "Reads every byte of a token file or a checkpoint and checks it. Exit code 0: whole.\n\n"
                 "Examples:\n"
                 "  ds-convert verify data/web.tok\n"
                 "  ds-convert verify runs/quickstart/latest/checkpoints/step-200",
                 Verify);
}

}  // namespace ds
