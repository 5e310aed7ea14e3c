#include "runtime/data/encode.h"

#include <algorithm>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"

namespace ds {
namespace {

/// Of Megatron-LM's data: tokens of a part, and documents of a unit.
constexpr int64_t kPartTokens = 1 << 18, kUnitDocuments = 1 << 16;

class TextReader : public InputReader {
 public:
  TextReader(const DataInput& input, const InputPosition& at)
      : units_(FileSource(input.path), input.kind, at.offset, at.line), input_(at.input) {}
  bool Next(InputUnit& unit) override {
    if (!units_.Next(unit.text)) return false;
    unit.name = units_.name();
    unit.after = {input_, units_.offset(), units_.line()};
    unit.file_position = units_.position();
    if (unit.text.ends) {  // an empty text ends where it begins: it is not to be read again
      unit.after = {input_ + 1, 0, 1};
      unit.file_position = 0;
    }
    return true;
  }

 private:
  UnitReader units_;
  int64_t input_;
};

std::shared_ptr<const MegatronData> Open(const std::filesystem::path& index) {
  try {
    return std::make_shared<MegatronData>(index);
  } catch (const RuntimeError& error) {  // an input is wrong: its user's to mend
    throw UsageError(error.what());
  }
}

class MegatronReader : public InputReader {
 public:
  MegatronReader(const DataInput& input, const InputPosition& at)
      : data_(Open(input.path)), input_(at.input), document_(at.line - 1), offset_(at.offset) {}

  bool Next(InputUnit& unit) override {
    const MegatronIndex& index = data_->index();
    if (document_ >= index.documents()) return false;
    const int64_t begin = index.DocumentBegin(document_), end = index.DocumentBegin(document_ + 1);
    unit.ids = data_;
    unit.first = document_;
    unit.begin = begin + offset_;
    if (end - unit.begin > kPartTokens) {
      unit.end = unit.begin + kPartTokens;
      offset_ += kPartTokens;
      unit.last = document_ + 1;
    } else {
      do {
        ++document_;
        unit.end = index.DocumentBegin(document_);
      } while (document_ < index.documents() && document_ - unit.first < kUnitDocuments &&
               index.DocumentBegin(document_ + 1) - unit.begin <= kPartTokens);
      offset_ = 0;
      unit.last = document_;
    }
    unit.after = {input_, offset_, document_ + 1};
    unit.file_position = unit.end * index.token_bytes();
    return true;
  }

 private:
  std::shared_ptr<const MegatronData> data_;
  int64_t input_, document_, offset_;
};

/// Tokenizes what it is told.
class EncodeSink : public DocumentSink {
 public:
  EncodeSink(const Encoding& encoding, const TextUnit& unit, Encoded& out) : encoding_(encoding), out_(out) {
    begins_ = unit.begins;
  }
  void BeginDocument() override { begins_ = true; }
  void Text(std::string_view part) override {
    const size_t before = out_.tokens.size();
    encoding_.tokenizer->Encode(part, out_.tokens);
    out_.parts.push_back({Checksum(part), static_cast<int64_t>(out_.tokens.size() - before), begins_, false});
    out_.bytes += static_cast<int64_t>(part.size());
    begins_ = false;
  }
  void EndDocument() override {
    out_.parts.back().ends = true;
    if (encoding_.end_of_document < 0) return;
    out_.tokens.push_back(encoding_.end_of_document);
    ++out_.parts.back().tokens;
  }

 private:
  const Encoding& encoding_;
  Encoded& out_;
  bool begins_ = false;
};

void EncodeIds(const InputUnit& unit, const Encoding& encoding, Encoded& out) {
  const MegatronIndex& index = unit.ids->index();
  for (int64_t document = unit.first; document < unit.last; ++document) {
    const int64_t document_begin = index.DocumentBegin(document), document_end = index.DocumentBegin(document + 1);
    if (document_begin == document_end) {
      ++out.empty;
      continue;
    }
    const int64_t begin = std::max(document_begin, unit.begin), count = std::min(document_end, unit.end) - begin;
    const size_t before = out.tokens.size();
    out.tokens.resize(before + static_cast<size_t>(count));
    unit.ids->Read(begin, count, encoding.vocabulary, out.tokens.data() + before);
    EncodedPart part;
    part.hash = Checksum({reinterpret_cast<const char*>(out.tokens.data() + before), static_cast<size_t>(count) * 4});
    part.begins = begin == document_begin;
    part.ends = begin + count == document_end;
    if (part.ends && encoding.end_of_document >= 0 && out.tokens.back() != encoding.end_of_document)
      out.tokens.push_back(encoding.end_of_document);
    part.tokens = static_cast<int64_t>(out.tokens.size() - before);
    out.parts.push_back(part);
  }
}

}  // namespace

std::unique_ptr<InputReader> OpenInput(const DataInput& input, const InputPosition& at) {
  switch (input.kind) {
    case InputKind::megatron:
      return std::make_unique<MegatronReader>(input, at);
    case InputKind::text:
    case InputKind::json_lines:
      return std::make_unique<TextReader>(input, at);
    case InputKind::tokens:
      break;
  }
  throw UsageError(input.path.string() + " is a token file already");
}

Encoded EncodeUnit(const InputUnit& unit, const Encoding& encoding, const std::string& field) {
  Encoded out;
  if (unit.ids) {
    try {
      EncodeIds(unit, encoding, out);
    } catch (const RuntimeError& error) {
      throw UsageError(error.what());
    }
    return out;
  }
  EncodeSink sink(encoding, unit.text, out);
  out.empty = ReadUnit(unit.text, unit.name, field, sink);
  for (int32_t token : out.tokens)
    if (token < 0 || token >= encoding.vocabulary)
      throw RuntimeError("the tokenizer " + encoding.id + " made token " + std::to_string(token) +
                         ", not in its vocabulary of " + std::to_string(encoding.vocabulary));
  return out;
}

}  // namespace ds
