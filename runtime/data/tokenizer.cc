#include "runtime/data/tokenizer.h"

#include "runtime/base/error.h"

namespace ds {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string id() const override { return "bytes"; }
  int64_t vocabulary() const override { return 257; }
  int32_t end_of_document() const override { return 256; }
  void Encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
  std::string Decode(int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  throw UsageError("there is no tokenizer `" + name + "`; this version has one: bytes");
}

}  // namespace ds
