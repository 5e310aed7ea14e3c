// Megatron-LM's indexed datasets, PREFIX.idx and PREFIX.bin, as a stream of token ids. docs/token-file.md describes
// what is read of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/base/file.h"

namespace ds {

/// PREFIX.idx: where documents begin. All of it is checked when it is made; nothing is allocated. Thread-safe.
class MegatronIndex {
 public:
  /// `bytes`: of the whole file; the caller's, outlive the index. Throws RuntimeError: `name` and the wrong field.
  MegatronIndex(std::string_view bytes, const std::string& name);

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t sequences() const { return sequences_; }
  /// Where document `index` begins, in tokens; for documents(): where the last one ends.
  int64_t DocumentBegin(int64_t index) const;
  int token_bytes() const { return token_bytes_; }
  bool token_signed() const { return token_signed_; }
  const char* dtype() const { return dtype_; }  ///< "uint16", ...

 private:
  std::string_view bytes_;
  const char* dtype_ = "";
  int token_bytes_ = 0;
  bool token_signed_ = false;
  int64_t tokens_ = 0, documents_ = 0, sequences_ = 0;
};

/// The pair, mapped. Thread-safe.
class MegatronData {
 public:
  /// `index_path`: PREFIX.idx. Throws RuntimeError naming the file and what is wrong.
  explicit MegatronData(const std::filesystem::path& index_path);
  const MegatronIndex& index() const { return index_; }
  /// Tokens [begin, begin + count). Throws RuntimeError: one is not in [0, vocabulary).
  void Read(int64_t begin, int64_t count, int64_t vocabulary, int32_t* out) const;
  /// Stands for the pair: the checksum of the index and of the ids' first and last mebibyte.
  uint64_t Identity() const;

 private:
  MappedFile index_map_, tokens_map_;
  MegatronIndex index_;
};

}  // namespace ds
