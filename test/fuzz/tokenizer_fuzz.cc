// SentencePiece models: MODEL %% TEXT. A model that is taken encodes any text; one that calls itself lossless gives it
// back.
#include "runtime/base/error.h"
#include "runtime/data/tokenizer_sentencepiece.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> parts = fuzz::Parts(fuzz::View(data, size));
  if (parts.size() < 2) parts.emplace_back("And God said, \xFFLet there be light\n");
  std::string decoded;
  std::unique_ptr<Tokenizer> tokenizer;
  const fuzz::Memory limit{4000, 8 << 20};
  const bool encoded = fuzz::Guarded(size, limit, {"the tokenizer "}, [&] {
    tokenizer = MakeSentencePieceTokenizer(parts[0], "m.model");
    std::vector<int32_t> tokens;
    tokenizer->Encode(parts[1], tokens);
    for (const int32_t token : tokens) {
      fuzz::Check(token >= 0 && token < tokenizer->vocabulary(), "a token outside of the vocabulary");
      decoded += tokenizer->Decode(token);
    }
  });
  if (encoded && tokenizer->lossless())
    fuzz::Check(decoded == parts[1], "a lossless tokenizer lost something", decoded);
  return 0;
}
