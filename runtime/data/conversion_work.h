// What a conversion has done so far, in a folder beside its output: so that one that was interrupted goes on.
//
//   PREFIX.tok.partial/
//     lock       held while a conversion works here
//     journal    JSON lines: what is converted and how; then one line for each finished piece, with checksums
//     tokens     the tokens of all documents, in the order of the inputs, as wide as in token files
//     parts      16 bytes for each part of a document: its hash, its tokens and whether it begins or ends the document
//     documents, out.*   of the second pass (assemble.h): made anew by each run
//
// A piece counts once its line is in the journal and everything it speaks of is on disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/data_file.h"
#include "runtime/data/encode.h"

namespace ds {

/// What is converted. Two conversions with equal ones make the same tokens.
struct ConversionIdentity {
  std::string options;              ///< tokenizer, field, ...
  std::vector<std::string> inputs;  ///< of each: path, size, time of its last change
};

struct ConversionState {
  InputPosition at;
  int64_t tokens = 0, parts = 0, empty = 0;
  int64_t bytes = 0;  ///< of text
  bool complete = false;
  bool operator==(const ConversionState&) const = default;
};

/// A part as `parts` holds it.
struct PartRecord {
  uint64_t hash = 0, tokens_and_flags = 0;
  int64_t tokens() const { return static_cast<int64_t>(tokens_and_flags >> 2); }
  bool begins() const { return tokens_and_flags & 2; }
  bool ends() const { return tokens_and_flags & 1; }
};
static_assert(sizeof(PartRecord) == 16);

class ConversionWork {
 public:
  /// Makes `folder`, or takes up what is in it where the identity is the same and its checksums hold; anything else is
  /// removed, and `say` gets a sentence that tells so. token_bytes: 2 or 4. Throws UsageError: another process works
  /// there; SystemError.
  ConversionWork(const std::filesystem::path& folder, const ConversionIdentity& identity, int token_bytes,
                 const std::function<void(const std::string&)>& say);
  ~ConversionWork();
  ConversionWork(const ConversionWork&) = delete;
  ConversionWork& operator=(const ConversionWork&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path tokens_path() const { return folder_ / "tokens"; }
  std::filesystem::path parts_path() const { return folder_ / "parts"; }
  int token_bytes() const { return token_bytes_; }

  /// Everything appended so far; of it, what counts is what was there at the last ClosePiece.
  const ConversionState& state() const { return state_; }
  /// Whether something counts: it is worth keeping.
  bool HasPieces() const { return pieces_ > 0; }
  int64_t open_bytes() const { return state_.bytes + state_.tokens - closed_.bytes - closed_.tokens; }

  void Append(const Encoded& encoded, const InputPosition& after);
  /// Makes what was appended count. complete: the inputs are at their end.
  void ClosePiece(bool complete);
  /// Removes what this class and the second pass made, and the folder where nothing else is in it.
  void Remove();

 private:
  void Lock();
  bool TakeUp(const ConversionIdentity& identity, const std::string& header,
              const std::function<void(const std::string&)>& say);
  bool ReadPiece(const std::string& line, ConversionState& state) const;
  void StartAnew(const std::string& header);
  void RemoveFiles();

  std::filesystem::path folder_;
  int token_bytes_;
  int lock_fd_ = -1;
  ConversionState state_, closed_;
  int64_t pieces_ = 0;
  std::unique_ptr<AppendFile> tokens_, parts_;
};

}  // namespace ds
