#include "runtime/data/tokenizer.h"

#include "runtime/data/tokenizer_sentencepiece.h"
#include "runtime/job/tokenizer_file.h"

namespace ds {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string id() const override { return kByteTokenizer; }
  int64_t vocabulary() const override { return kByteVocabulary; }
  int32_t end_of_document() const override { return 256; }
  void Encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }
  std::string Decode(int32_t token) const override {
    return token >= 0 && token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }
  bool lossless() const override { return true; }
  bool adds_space() const override { return false; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& name) {
  if (name == kByteTokenizer) return std::make_unique<ByteTokenizer>();
  return MakeSentencePieceTokenizer(ReadTokenizerFile(name), name);
}

}  // namespace ds
