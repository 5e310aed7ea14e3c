// Token files: tokens of a text, mapped into memory. docs/token-file.md describes the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/file.h"
#include "runtime/data/data_file.h"

namespace ds {

/// The tokenizer that files of ids state whose tokenizer is not known.
inline constexpr const char* kIdsTokenizer = "ids";

/// What a token file says about itself.
struct TokenFileInfo {
  uint32_t token_bytes = 2;  ///< 2 or 4
  uint32_t shard = 0, shards = 1;
  int64_t vocabulary = 0, tokens = 0, documents = 0;
  std::string tokenizer;
  uint64_t set = 0, payload = 0;  ///< checksums
};

/// Token width for a vocabulary.
inline uint32_t TokenBytes(int64_t vocabulary) { return vocabulary <= 65536 ? 2 : 4; }

/// A token file whose header and size were checked. Read-only; thread-safe; nothing is allocated.
class TokenFile {
 public:
  /// Maps the file. Throws RuntimeError that names it and what is wrong with it.
  explicit TokenFile(const std::filesystem::path& path);
  /// The same over a file's bytes: the caller's, 8-aligned, outlive this. `name`: for messages.
  TokenFile(std::string_view bytes, const std::filesystem::path& name);

  const TokenFileInfo& info() const { return info_; }
  const std::filesystem::path& path() const { return path_; }

  /// Tokens [begin, begin + count) into `out`. Throws RuntimeError: a token is not in the vocabulary.
  void Read(int64_t begin, int64_t count, int32_t* out) const;
  /// Where document `index` begins, in tokens of this file.
  int64_t Document(int64_t index) const;
  /// Reads every byte: the payload's checksum, the tokens' range, the padding, the order of the documents. Throws
  /// RuntimeError.
  void Verify() const;
  /// The checksum of the payload alone. Throws RuntimeError.
  void VerifyChecksum() const;

 private:
  void Open(std::string_view bytes);

  std::optional<MappedFile> map_;  // of a file
  std::string_view bytes_;
  std::filesystem::path path_;
  TokenFileInfo info_;
};

/// Whether `path` names a token file: its name ends in ".tok".
bool IsTokenFileName(const std::filesystem::path& path);

/// The files that PREFIX.tok stands for: itself where it exists, else PREFIX-00000-of-NNNNN.tok and all others of that
/// set. Empty: neither. Throws RuntimeError: a shard is missing, or shards of several sets.
std::vector<std::filesystem::path> TokenFileSet(const std::filesystem::path& path);

/// The names PREFIX-NNNNN-of-NNNNN.tok that exist for PREFIX.tok, sorted; nothing is opened.
std::vector<std::filesystem::path> TokenShardFiles(const std::filesystem::path& path);

/// Writes a set of token files. Tokens are streamed; memory holds two blocks, whatever the numbers of tokens and
/// documents. Nothing is visible under its final name before Commit(); a writer destroyed without it removes what it
/// wrote.
class TokenFileWriter {
 public:
  /// `path`: PREFIX.tok. shard_tokens > 0: shards of so many tokens, named PREFIX-NNNNN-of-NNNNN.tok. `temporary`: the
  /// folder, on the same file system, for what is not whole yet; empty: beside the output.
  TokenFileWriter(const std::filesystem::path& path, const std::string& tokenizer, int64_t vocabulary,
                  int64_t shard_tokens = 0, const std::filesystem::path& temporary = {});
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  void BeginDocument();  ///< the next token is a document's first
  void Append(const std::vector<int32_t>& tokens);
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }

  enum class Outcome { written, unchanged };
  /// Completes the set. Files of the same name (or of a set of the same prefix) that hold exactly this are left as they
  /// are, so a Commit that was interrupted can be done again; others are replaced with `force`, and are a UsageError
  /// without.
  Outcome Commit(bool force);
  /// The files of the set, once committed.
  const std::vector<std::filesystem::path>& files() const { return files_; }

 private:
  struct Shard;
  void OpenShard();
  void CloseShard();
  void Flush();
  std::filesystem::path Name(size_t shard, size_t shards) const;
  /// Files that stand for the same PREFIX.tok besides `names`.
  std::vector<std::filesystem::path> OtherFiles(const std::set<std::filesystem::path>& names) const;

  std::filesystem::path prefix_, temporary_;
  TokenFileInfo info_;
  int64_t shard_tokens_ = 0, tokens_ = 0, documents_ = 0;
  bool begins_document_ = false;
  std::vector<Shard> shards_;  // closed ones, and the open one last
  int fd_ = -1;                // of the open shard
  ChecksumStream checksum_;
  std::unique_ptr<AppendFile> documents_begin_;  // of the open shard: 8 bytes each
  std::string block_;                            // tokens not yet written
  std::vector<std::filesystem::path> files_;
};

}  // namespace ds
