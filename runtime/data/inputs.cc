#include "runtime/data/inputs.h"

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/data/byte_source.h"
#include "runtime/data/token_file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

InputKind KindOf(const fs::path& path, const InputOptions& options) {
  if (IsTokenFileName(path)) return InputKind::tokens;
  if (path.extension() == ".idx" || path.extension() == ".bin") return InputKind::megatron;
  if (options.format) return *options.format;
  const fs::path extension = WithoutCompression(path).extension();
  if (extension == ".json")
    throw UsageError(path.string() +
                     ": a *.json may be one JSON text or JSON lines; name it *.jsonl, or say --format jsonl or text");
  return extension == ".jsonl" || extension == ".ndjson" ? InputKind::json_lines : InputKind::text;
}

/// Whether a folder's file is looked at.
bool IsDataName(const fs::path& path, const InputOptions& options) {
  if (IsTokenFileName(path) || path.extension() == ".idx") return true;
  const fs::path extension = WithoutCompression(path).extension();
  return extension == ".txt" || extension == ".jsonl" || extension == ".ndjson" ||
         (extension == ".json" && options.format == InputKind::json_lines);
}

void AddFolder(const fs::path& folder, const InputOptions& options, std::set<fs::path>& around,
               std::vector<DataInput>& inputs) {
  const fs::path self = fs::canonical(folder);
  if (!around.insert(self).second) return;  // a link to a folder around it
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  for (const fs::path& path : entries) {
    if (path.filename().string()[0] == '.') continue;
    if (fs::is_directory(path)) {
      if (path.extension() != ".partial") AddFolder(path, options, around, inputs);
    } else if (fs::is_regular_file(path) && IsDataName(path, options)) {
      inputs.push_back({path, KindOf(path, options)});
    } else if (!fs::exists(path) && IsDataName(path, options)) {
      throw UsageError(path.string() + " is a link to a file that does not exist; make the file, or remove the link");
    }
  }
  around.erase(self);
}

bool IsTokens(const DataInput& input) { return input.kind == InputKind::tokens || input.kind == InputKind::megatron; }

std::vector<DataInput> FolderInputs(const fs::path& folder, const InputOptions& options) {
  std::vector<DataInput> inputs;
  std::set<fs::path> around;
  try {
    AddFolder(folder, options, around, inputs);
  } catch (const fs::filesystem_error& error) {
    throw UsageError("cannot read the folder " + error.path1().string() + ": " + error.code().message());
  }
  if (inputs.empty())
    throw UsageError(
        "the folder " + folder.string() +
        " holds no data: no *.txt, *.jsonl or *.ndjson (or those with .gz or .zst), no *.tok and no *.idx");
  const auto is_token_file = [](const DataInput& input) { return input.kind == InputKind::tokens; };
  if (options.streams && !std::all_of(inputs.begin(), inputs.end(), is_token_file))
    std::erase_if(inputs, is_token_file);  // what conversions made of the folder, this one perhaps
  const auto tokens = std::find_if(inputs.begin(), inputs.end(), IsTokens);
  const auto texts = std::find_if_not(inputs.begin(), inputs.end(), IsTokens);
  if (tokens != inputs.end() && texts != inputs.end())
    throw UsageError("the folder " + folder.string() + " holds token files and texts (" + tokens->path.string() + ", " +
                     texts->path.string() + "); name those that are meant");
  return inputs;
}

DataInput StreamInput(const fs::path& path, const InputOptions& options) {
  if (!options.format)
    throw UsageError((path == "-" ? "standard input" : path.string()) +
                     " has no name that tells what it is: say --format text or --format jsonl");
  return {path, *options.format, true};
}

DataInput MegatronInput(const std::string& name) {
  fs::path index = name, tokens = name;
  index.replace_extension(".idx");
  tokens.replace_extension(".bin");
  std::error_code error;
  for (const fs::path& path : {index, tokens})
    if (!fs::is_regular_file(path, error))
      throw UsageError(path.string() + " does not exist; Megatron-LM's data are two files, " +
                       index.filename().string() + " and " + tokens.filename().string());
  return {index, InputKind::megatron};
}

}  // namespace

std::vector<DataInput> FindInputs(const std::vector<std::string>& paths, const InputOptions& options) {
  std::vector<DataInput> inputs;
  for (const std::string& name : paths) {
    const fs::path path(name);
    std::error_code error;
    if (name == "-" && options.streams) {
      inputs.push_back(StreamInput(path, options));
    } else if (fs::is_directory(path, error)) {
      for (DataInput& input : FolderInputs(path, options)) inputs.push_back(std::move(input));
    } else if (IsTokenFileName(path)) {
      std::vector<fs::path> files = TokenFileSet(path);
      if (files.empty()) throw UsageError(name + " does not exist, nor shards of it; `ds-convert data` makes it");
      for (fs::path& file : files) inputs.push_back({std::move(file), InputKind::tokens});
    } else if (path.extension() == ".idx" || path.extension() == ".bin") {
      inputs.push_back(MegatronInput(name));
    } else if (fs::is_regular_file(path, error)) {
      inputs.push_back({path, KindOf(path, options)});
    } else if (fs::is_fifo(path, error) && options.streams) {
      inputs.push_back(StreamInput(path, options));
    } else {
      // A pipe or a device: each rank would read something else of it, or never come to its end.
      if (fs::exists(path, error)) throw UsageError(name + " is not a regular file");
      throw UsageError(name + " does not exist");
    }
  }
  return inputs;
}

}  // namespace ds
