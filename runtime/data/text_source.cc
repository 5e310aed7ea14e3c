#include "runtime/data/text_source.h"

#include <algorithm>
#include <fstream>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/text.h"
#include "runtime/data/token_file.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

bool IsJsonLinesName(const fs::path& path) { return path.extension() == ".jsonl" || path.extension() == ".ndjson"; }

InputKind KindOf(const fs::path& path) {
  return IsTokenFileName(path) ? InputKind::tokens : IsJsonLinesName(path) ? InputKind::json_lines : InputKind::text;
}

std::vector<DataInput> FolderInputs(const fs::path& folder) {
  std::vector<DataInput> inputs;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const fs::path& path = entry.path();
      if (entry.is_regular_file() && path.filename().string()[0] != '.' &&
          (path.extension() == ".txt" || KindOf(path) != InputKind::text))
        inputs.push_back({path, KindOf(path)});
    }
  } catch (const fs::filesystem_error& error) {
    throw UsageError("cannot read the folder " + folder.string() + ": " + error.code().message());
  }
  std::sort(inputs.begin(), inputs.end(), [](auto& a, auto& b) { return a.path < b.path; });
  if (inputs.empty())
    throw UsageError("the folder " + folder.string() + " holds no data: no *.tok, *.txt, *.jsonl or *.ndjson");
  const size_t tokens = static_cast<size_t>(
      std::count_if(inputs.begin(), inputs.end(), [](auto& input) { return input.kind == InputKind::tokens; }));
  if (tokens != 0 && tokens != inputs.size())
    throw UsageError("the folder " + folder.string() + " holds token files and texts; name those that are meant");
  return inputs;
}

std::ifstream OpenText(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError("cannot open " + path.string() + ": " + std::generic_category().message(errno));
  return file;
}

int64_t ReadText(const fs::path& path, bool checksums, DocumentSink& sink) {
  const uint64_t checksum = checksums ? ChecksumFile(path) : 0;
  std::ifstream file = OpenText(path);
  std::string block(1 << 20, '\0');
  int64_t done = 0;
  for (;;) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const int64_t count = file.gcount();
    if (file.bad()) throw RuntimeError("cannot read " + path.string());
    if (count == 0) break;
    if (done == 0) sink.BeginDocument(checksum);
    sink.Text({block.data(), static_cast<size_t>(count)});
    done += count;
    sink.Progress(done);
  }
  if (done == 0) return 1;
  sink.EndDocument();
  return 0;
}

/// The text of one JSON line. `place`: "FILE:LINE".
const std::string& TextOf(const Value& document, const std::string& field, const std::string& place) {
  if (document.kind != Value::Kind::map)
    throw UsageError(place + ": not an object; each line is {\"" + field + "\": ...}");
  const Value* text = document.Find(field);
  if (!text) {
    std::vector<std::string> names;
    for (const auto& [name, value] : document.fields) names.push_back(name);
    throw UsageError(place + ": no field `" + field + "`; it has " + (names.empty() ? "none" : Join(names, ", ")));
  }
  if (text->kind != Value::Kind::scalar || !text->quoted)
    throw UsageError(place + ": field `" + field + "` is not a string");
  return text->text;
}

int64_t ReadJsonLines(const fs::path& path, const std::string& field, bool checksums, DocumentSink& sink) {
  std::ifstream file = OpenText(path);
  std::string line;
  int64_t number = 0, done = 0, empty = 0;
  while (std::getline(file, line)) {
    ++number;
    done += static_cast<int64_t>(line.size()) + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = path.string() + ":" + std::to_string(number);
    Value document;
    try {
      document = ParseJson(line, "");
    } catch (const UsageError& error) {  // ":1:COLUMN: reason"
      throw UsageError(place + std::string(error.what()).substr(2));
    }
    const std::string& text = TextOf(document, field, place);
    if (text.empty()) {
      ++empty;
    } else {
      sink.BeginDocument(checksums ? Checksum(text) : 0);
      sink.Text(text);
      sink.EndDocument();
    }
    sink.Progress(done);
  }
  if (file.bad()) throw RuntimeError("cannot read " + path.string());
  return empty;
}

}  // namespace

std::vector<DataInput> FindInputs(const std::vector<std::string>& paths) {
  std::vector<DataInput> inputs;
  for (const std::string& name : paths) {
    const fs::path path(name);
    std::error_code error;
    if (fs::is_directory(path, error)) {
      for (DataInput& input : FolderInputs(path)) inputs.push_back(std::move(input));
    } else if (IsTokenFileName(path)) {
      std::vector<fs::path> files = TokenFileSet(path);
      if (files.empty()) throw UsageError(name + " does not exist, nor shards of it; `ds-convert data` makes it");
      for (fs::path& file : files) inputs.push_back({std::move(file), InputKind::tokens});
    } else if (fs::is_regular_file(path, error)) {
      inputs.push_back({path, KindOf(path)});
    } else {
      // A pipe or a device: each rank would read something else of it, or never come to its end.
      if (fs::exists(path, error)) throw UsageError(name + " is not a regular file");
      throw UsageError(name + " does not exist");
    }
  }
  return inputs;
}

int64_t ReadDocuments(const DataInput& input, const std::string& field, bool checksums, DocumentSink& sink) {
  switch (input.kind) {
    case InputKind::text:
      return ReadText(input.path, checksums, sink);
    case InputKind::json_lines:
      return ReadJsonLines(input.path, field, checksums, sink);
    case InputKind::tokens:
      break;
  }
  throw UsageError(input.path.string() + " is a token file already");
}

}  // namespace ds
