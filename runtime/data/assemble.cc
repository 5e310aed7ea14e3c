#include "runtime/data/assemble.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/data/byte_source.h"
#include "runtime/data/data_file.h"
#include "runtime/data/dataset.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kWindowBytes = 1 << 20;

/// Where a document's tokens are, and the hash that decides its set.
struct DocumentRecord {
  int64_t begin = 0, tokens = 0;
  uint64_t hash = 0;
};

/// Parts to documents: one record each, in `path`. Returns how many.
int64_t WriteDocumentTable(const ConversionWork& work, const fs::path& path) {
  const std::unique_ptr<ByteSource> parts = FileSource(work.parts_path());
  AppendFile table(path);
  std::vector<PartRecord> records(1 << 14);
  DocumentRecord document;
  int64_t documents = 0, parts_of_document = 0;
  ChecksumStream hashes;
  for (;;) {
    const size_t bytes =
        ReadFully(*parts, reinterpret_cast<char*>(records.data()), records.size() * sizeof(PartRecord));
    if (bytes == 0) break;
    for (size_t i = 0; i < bytes / sizeof(PartRecord); ++i) {
      const PartRecord& part = records[i];
      if (part.begins()) {
        document = {document.begin + document.tokens, 0, part.hash};
        hashes = ChecksumStream();
        parts_of_document = 0;
      }
      document.tokens += part.tokens();
      hashes.Update(&part.hash, sizeof part.hash);
      if (++parts_of_document > 1) document.hash = hashes.Value();
      if (!part.ends()) continue;
      table.Append(&document, sizeof document);
      ++documents;
    }
  }
  table.Flush();
  return documents;
}

/// Documents' tokens from the work's file.
class TokenReader {
 public:
  /// ahead: documents are read in the order of the file, so a window of it is kept.
  TokenReader(const ConversionWork& work, bool ahead)
      : file_(work.tokens_path()), width_(work.token_bytes()), ahead_(ahead) {}

  void Read(int64_t begin, int64_t count, std::vector<int32_t>& tokens) {
    const int64_t at = begin * width_, bytes = count * width_;
    if (at < window_at_ || at + bytes > window_at_ + static_cast<int64_t>(window_.size())) {
      window_.resize(static_cast<size_t>(ahead_ ? std::max(bytes, kWindowBytes) : bytes));
      window_at_ = at;
      window_.resize(file_.Read(at, window_.size(), window_.data()));
      if (static_cast<int64_t>(window_.size()) < bytes) throw RuntimeError("the work of this conversion is cut short");
    }
    const char* from = window_.data() + (at - window_at_);
    tokens.assign(static_cast<size_t>(count), 0);
    for (size_t i = 0; i < tokens.size(); ++i)
      std::memcpy(&tokens[i], from + i * static_cast<size_t>(width_), static_cast<size_t>(width_));
  }

 private:
  RandomFile file_;
  int64_t width_;
  bool ahead_;
  std::string window_;
  int64_t window_at_ = 0;
};

}  // namespace

void Assemble(const ConversionWork& work, const AssembleOptions& options,
              const std::vector<std::unique_ptr<TokenFileWriter>>& sets) {
  const fs::path table_path = work.folder() / "documents";
  const int64_t documents = WriteDocumentTable(work, table_path);
  if (documents == 0) return;
  const RandomFile table(table_path);
  TokenReader reader(work, !options.shuffle_seed);
  const Sampler order(documents, options.shuffle_seed.value_or(0), options.shuffle_seed.has_value());
  const double validation_below = options.validation_fraction * 0x1p64;
  std::vector<int32_t> tokens;
  int64_t done = 0, told = 0;
  for (int64_t i = 0; i < documents; ++i) {
    DocumentRecord document;
    table.ReadExactly(order.At(i) * int64_t{sizeof document}, sizeof document, &document);
    TokenFileWriter& set = *sets[sets.size() > 1 && static_cast<double>(document.hash) < validation_below ? 1 : 0];
    set.BeginDocument();
    for (int64_t at = 0; at < document.tokens;) {
      const int64_t count = std::min<int64_t>(document.tokens - at, kWindowBytes / 4);
      reader.Read(document.begin + at, count, tokens);
      set.Append(tokens);
      at += count;
      done += count;
      if (options.progress && done - told >= kWindowBytes) options.progress(told = done);
    }
  }
}

}  // namespace ds
