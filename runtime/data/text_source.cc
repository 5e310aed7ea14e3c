#include "runtime/data/text_source.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json_field.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool ContinuesCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Tells a document in parts; false: it is empty.
bool TellDocument(std::string_view text, DocumentSink& sink) {
  if (text.empty()) return false;
  sink.BeginDocument();
  while (!text.empty()) {
    const size_t length = PartLength(text);
    sink.Text(text.substr(0, length));
    text.remove_prefix(length);
  }
  sink.EndDocument();
  return true;
}

/// The text of one JSON line. `place`: "FILE:LINE".
std::string TextOf(std::string_view line, const std::string& field, const std::string& place) {
  JsonField found;
  try {
    found = FindJsonString(line, field, "");
  } catch (const UsageError& error) {  // ":1:COLUMN: reason"
    throw UsageError(place + std::string(error.what()).substr(2));
  }
  if (!found.object) throw UsageError(place + ": not an object; each line is {\"" + field + "\": ...}");
  if (found.depth < 0)
    throw UsageError(place + ": no field `" + field + "`; it has " +
                     (found.names.empty() ? "none" : Shown(Join(found.names, ", "), 400)));
  if (!found.string) throw UsageError(place + ": field `" + field + "` is not a string");
  return std::move(found.text);
}

int64_t ReadLines(const TextUnit& unit, const std::string& name, const std::string& field, DocumentSink& sink) {
  int64_t number = unit.first_line, empty = 0;
  for (std::string_view left = unit.bytes; !left.empty(); ++number) {
    const size_t length = std::min(left.find('\n'), left.size());
    const std::string_view line = left.substr(0, length);
    left.remove_prefix(std::min(length + 1, left.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (!TellDocument(TextOf(line, field, name + ":" + std::to_string(number)), sink)) ++empty;
  }
  return empty;
}

}  // namespace

size_t PartLength(std::string_view text) {
  if (text.size() <= kPartBytes) return text.size();
  const std::string_view part = text.substr(0, kPartBytes);
  if (const size_t newline = part.rfind('\n'); newline != std::string_view::npos) return newline + 1;
  if (const size_t space = part.rfind(' '); space != std::string_view::npos && space > 0) return space;
  for (size_t end = kPartBytes; end > kPartBytes - 4; --end)
    if (!ContinuesCharacter(text[end])) return end;
  return kPartBytes;  // no UTF-8
}

UnitReader::UnitReader(std::unique_ptr<ByteSource> source, InputKind kind, int64_t offset, int64_t line)
    : source_(Decompressed(std::move(source))), kind_(kind), line_(line) {
  begins_ = offset == 0;
  if (offset == 0) {
    Fill(kByteOrderMark.size());
    if (buffer_.starts_with(kByteOrderMark)) {
      buffer_.erase(0, kByteOrderMark.size());
      offset_ = static_cast<int64_t>(kByteOrderMark.size());
    }
  }
  std::string skipped(std::min<size_t>(static_cast<size_t>(offset), kPartBytes), '\0');
  while (offset_ < offset) {
    const size_t wanted = std::min(skipped.size(), static_cast<size_t>(offset - offset_));
    const size_t count = source_->Read(skipped.data(), wanted);
    if (count == 0)
      throw UsageError(name() + " is shorter than it was: it ends at byte " + std::to_string(offset_) + " of its text");
    offset_ += static_cast<int64_t>(count);
  }
}

void UnitReader::Fill(size_t wanted) {
  if (ended_ || buffer_.size() >= wanted) return;
  const size_t before = buffer_.size();
  buffer_.resize(wanted);
  const size_t count = ReadFully(*source_, buffer_.data() + before, wanted - before);
  buffer_.resize(before + count);
  ended_ = buffer_.size() < wanted;
}

void UnitReader::Take(size_t count, TextUnit& unit) {
  unit.bytes.assign(buffer_, 0, count);
  buffer_.erase(0, count);
  offset_ += static_cast<int64_t>(count);
}

bool UnitReader::Next(TextUnit& unit) {
  unit = TextUnit();
  return kind_ == InputKind::json_lines ? NextLines(unit) : NextPart(unit);
}

bool UnitReader::NextPart(TextUnit& unit) {
  Fill(kPartBytes + 1);
  if (buffer_.empty() && !begins_) return false;
  unit.begins = std::exchange(begins_, false);
  Take(PartLength(buffer_), unit);
  unit.ends = ended_ && buffer_.empty();
  return true;
}

/// Reads until the buffer holds a whole line, and about kPartBytes where there is so much. Returns the bytes of its
/// whole lines.
size_t UnitReader::WholeLines() {
  size_t looked_at = 0;
  for (size_t wanted = kPartBytes;; wanted = buffer_.size() + kPartBytes) {
    Fill(wanted);
    const std::string_view fresh = std::string_view(buffer_).substr(looked_at);
    const size_t first = fresh.find('\n');
    const size_t line = first == std::string_view::npos ? buffer_.size() : looked_at + first;
    if (line > kLineLimit)
      throw UsageError(name() + ":" + std::to_string(line_) + ": the line is longer than " +
                       std::to_string(kLineLimit >> 20) + " MiB; lines of JSON are read whole: cut it into documents");
    if (ended_) return buffer_.size();
    if (first != std::string_view::npos) return looked_at + fresh.rfind('\n') + 1;
    looked_at = buffer_.size();
  }
}

bool UnitReader::NextLines(TextUnit& unit) {
  const size_t count = WholeLines();
  if (count == 0) return false;
  unit.lines = true;
  unit.first_line = line_;
  Take(count, unit);
  line_ += std::count(unit.bytes.begin(), unit.bytes.end(), '\n');
  return true;
}

int64_t ReadUnit(const TextUnit& unit, const std::string& name, const std::string& field, DocumentSink& sink) {
  if (unit.lines) return ReadLines(unit, name, field, sink);
  if (unit.begins && unit.ends) return TellDocument(unit.bytes, sink) ? 0 : 1;
  if (unit.begins) sink.BeginDocument();
  sink.Text(unit.bytes);
  if (unit.ends) sink.EndDocument();
  return 0;
}

int64_t ReadDocuments(std::unique_ptr<ByteSource> source, InputKind kind, const std::string& field,
                      DocumentSink& sink) {
  UnitReader reader(std::move(source), kind);
  int64_t empty = 0;
  for (TextUnit unit; reader.Next(unit);) {
    empty += ReadUnit(unit, reader.name(), field, sink);
    sink.Progress(reader.position());
  }
  return empty;
}

int64_t ReadDocuments(const DataInput& input, const std::string& field, DocumentSink& sink) {
  if (input.kind != InputKind::text && input.kind != InputKind::json_lines)
    throw UsageError(input.path.string() + " holds tokens already, not text");
  return ReadDocuments(FileSource(input.path), input.kind, field, sink);
}

}  // namespace ds
