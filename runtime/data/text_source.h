// Texts as documents: plain files (one document each) and JSON lines (one document a line), read as a stream.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

enum class InputKind { tokens, text, json_lines };

struct DataInput {
  std::filesystem::path path;
  InputKind kind = InputKind::text;
};

/// What `paths` stand for, in order. *.tok: token files (a set of shards by its PREFIX.tok); *.jsonl and *.ndjson: JSON
/// lines; other files: text. A folder stands for its files *.txt, *.jsonl, *.ndjson and *.tok by name; other files
/// and subfolders are not looked at. Throws UsageError naming the path: not there, not readable, a folder without any,
/// a folder with both token files and texts.
std::vector<DataInput> FindInputs(const std::vector<std::string>& paths);

/// Receives the documents of a text.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  /// `checksum`: XXH64 of the document's text; 0 unless asked for.
  virtual void BeginDocument(uint64_t checksum) = 0;
  virtual void Text(std::string_view piece) = 0;  ///< not empty
  virtual void EndDocument() = 0;
  /// After each piece that was read: bytes of the input so far. May throw to stop.
  virtual void Progress(int64_t) {}
};

/// Streams the documents of a text or JSON-lines file in pieces of at most a megabyte (a line of JSON is read whole).
/// `field` of each JSON line is its text. Returns how many documents were empty: they are passed over. Throws
/// UsageError naming file, line and column: not JSON, no such field, not a string.
int64_t ReadDocuments(const DataInput& input, const std::string& field, bool checksums, DocumentSink& sink);

}  // namespace ds
