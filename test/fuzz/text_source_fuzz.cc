// Texts and JSON lines as documents: the first byte says which ('t': text, else JSON lines), the rest is the file.
#include "runtime/data/text_source.h"

#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

/// Checks the order of calls, and adds the texts up.
class Sink : public DocumentSink {
 public:
  explicit Sink(size_t size) : size_(static_cast<int64_t>(size)) {}
  void BeginDocument() override {
    fuzz::Check(!open_, "a document inside a document");
    open_ = true;
  }
  void Text(std::string_view part) override {
    fuzz::Check(open_ && !part.empty() && part.size() <= kPartBytes, "a part outside of documents, empty or too long");
    bytes_ += static_cast<int64_t>(part.size());
  }
  void EndDocument() override {
    fuzz::Check(open_, "the end of no document");
    open_ = false;
  }
  void Progress(int64_t done) override {
    fuzz::Check(done >= done_ && done <= size_, "progress goes back, or beyond the end");
    done_ = done;
  }
  void CheckEnd() const { fuzz::Check(!open_ && bytes_ <= size_, "a document is left open, or grew"); }

 private:
  int64_t size_, done_ = 0, bytes_ = 0;
  bool open_ = false;
};

bool Compressed(std::string_view bytes) {  // another target's
  return bytes.starts_with("\x1f\x8b") || (bytes.size() >= 4 && bytes.substr(1, 3) == "\xb5\x2f\xfd") ||
         (bytes.size() >= 4 && bytes.substr(1, 3) == "\x2a\x4d\x18");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::View(data + 1, size - 1);
  if (Compressed(bytes)) return 0;
  const InputKind kind = data[0] == 't' ? InputKind::text : InputKind::json_lines;
  Sink sink(bytes.size());
  if (fuzz::Guarded(bytes.size(), {50, 6 << 20}, {"f:", "f "},
                    [&] { ReadDocuments(MemorySource(bytes, "f"), kind, "text", sink); }))
    sink.CheckEnd();
  return 0;
}
