// What the paths of a conversion or of a job stand for: files and their kinds.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ds {

enum class InputKind { tokens, text, json_lines, megatron };

struct DataInput {
  std::filesystem::path path;  ///< "-": standard input; of Megatron-LM's pair, the .idx
  InputKind kind = InputKind::text;
  bool stream = false;  ///< standard input or a pipe: read once, of unknown size
};

struct InputOptions {
  std::optional<InputKind> format;  ///< text or json_lines: what inputs are that are neither tokens nor Megatron-LM's
  bool streams = false;  ///< for conversions: "-" and pipes are allowed, a folder's *.tok beside others passed over
};

/// What `paths` stand for, in order. By name, without .gz, .zst or .zstd: *.tok are token files (a set of shards by its
/// PREFIX.tok), *.idx and *.bin Megatron-LM's pair, *.jsonl and *.ndjson JSON lines, others text. A folder stands for
/// its files *.txt, *.jsonl, *.ndjson, *.tok and *.idx (with format json_lines *.json too) and those of its subfolders,
/// by path; hidden ones (.NAME), PREFIX.tok.partial and other files are not looked at. Throws UsageError naming the
/// path: not there, not readable, a folder without any, a folder with both tokens and texts, *.json without a format.
std::vector<DataInput> FindInputs(const std::vector<std::string>& paths, const InputOptions& options = {});

}  // namespace ds
