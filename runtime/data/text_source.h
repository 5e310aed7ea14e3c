// Texts as documents: plain files (one document each) and JSON lines (one document a line), read as a stream of parts.
//
// A document is tokenized in parts of at most kPartBytes, so that no document is too long for memory and many threads
// work on one. Where it is cut is a function of its text alone: docs/token-file.md, "Long documents".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/data/byte_source.h"
#include "runtime/data/inputs.h"

namespace ds {

inline constexpr size_t kPartBytes = 1 << 20;
/// A line of JSON is held in memory whole.
inline constexpr size_t kLineLimit = 64 << 20;

/// Bytes of the first part of `text`, of which at least kPartBytes + 1 bytes are there unless it ends before: all of it
/// up to kPartBytes; else up to and with the last newline in kPartBytes, else up to the last space (which begins the
/// next part), else up to the last beginning of a UTF-8 character.
size_t PartLength(std::string_view text);

/// A run of a source's bytes that can be read apart from the others: a part of a document, or lines of JSON.
struct TextUnit {
  std::string bytes;
  bool lines = false;
  bool begins = false, ends = false;  ///< of a part: it is its document's first, last
  int64_t first_line = 1;             ///< of lines
};

/// Receives documents.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  virtual void BeginDocument() = 0;
  virtual void Text(std::string_view part) = 0;  ///< not empty
  virtual void EndDocument() = 0;
  /// From ReadDocuments, after each unit: bytes of the input's file so far. May throw to stop.
  virtual void Progress(int64_t) {}
};

/// Cuts a text (decompressed; a byte-order mark is passed over) into units, in bounded memory.
class UnitReader {
 public:
  /// `offset`, `line`: where to go on, as the reader that came so far told. Bytes before are read and dropped.
  UnitReader(std::unique_ptr<ByteSource> source, InputKind kind, int64_t offset = 0, int64_t line = 1);
  /// The next unit; false at the end. Throws UsageError: what Decompressed throws; a line longer than kLineLimit.
  bool Next(TextUnit& unit);
  int64_t offset() const { return offset_; }                ///< bytes of the text in all units so far
  int64_t line() const { return line_; }                    ///< the next one's number
  int64_t position() const { return source_->position(); }  ///< of the file, for progress
  const std::string& name() const { return source_->name(); }

 private:
  void Fill(size_t wanted);
  bool NextPart(TextUnit& unit);
  bool NextLines(TextUnit& unit);
  size_t WholeLines();
  void Take(size_t count, TextUnit& unit);

  std::unique_ptr<ByteSource> source_;
  InputKind kind_;
  int64_t offset_ = 0, line_ = 1;
  std::string buffer_;
  bool ended_ = false, begins_ = false;
};

/// Tells the documents of a unit to `sink`; returns how many of them were empty: they are passed over. `field` of each
/// JSON line is its text (runtime/base/json_field.h says how names are read). Throws UsageError naming file, line and
/// column: not JSON, no such field, not a string.
int64_t ReadUnit(const TextUnit& unit, const std::string& name, const std::string& field, DocumentSink& sink);

/// Streams all documents of an input, or of `source`. Returns how many were empty. Throws UsageError too where the
/// input holds tokens already.
int64_t ReadDocuments(const DataInput& input, const std::string& field, DocumentSink& sink);
int64_t ReadDocuments(std::unique_ptr<ByteSource> source, InputKind kind, const std::string& field, DocumentSink& sink);

}  // namespace ds
