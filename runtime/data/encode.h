// Units of input to tokens: what the threads of a conversion do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/inputs.h"
#include "runtime/data/megatron.h"
#include "runtime/data/text_source.h"
#include "runtime/data/tokenizer.h"

namespace ds {

/// The tokens of a part of a document.
struct EncodedPart {
  uint64_t hash = 0;  ///< XXH64 of its text (of ids: as 4 bytes each)
  int64_t tokens = 0;
  bool begins = false, ends = false;  ///< it is its document's first, last (with the end of the document)
};

struct Encoded {
  std::vector<int32_t> tokens;
  std::vector<EncodedPart> parts;
  int64_t empty = 0;  ///< documents passed over
  int64_t bytes = 0;  ///< of text
};

/// What ids mean, without saying how text becomes them where tokenizer is null.
struct Encoding {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string id;  ///< what token files state
  int64_t vocabulary = 0;
  int32_t end_of_document = -1;  ///< -1: none is added (Megatron-LM's documents as they are)
};

/// Where reading goes on: of texts, an offset into the (decompressed) text and a line; of Megatron-LM's data, a token
/// of the document `line`.
struct InputPosition {
  int64_t input = 0;  ///< index in the list of inputs
  int64_t offset = 0, line = 1;
  bool operator==(const InputPosition&) const = default;
};

/// A run of an input.
struct InputUnit {
  TextUnit text;
  std::shared_ptr<const MegatronData>
      ids;  ///< set: documents [first, last), or tokens [begin, end) of the one document
  int64_t first = 0, last = 0, begin = 0, end = 0;
  std::string name;  ///< of the input
  InputPosition after;
  int64_t file_position = 0;  ///< bytes of the input's file read so far, for progress

  int64_t weight() const { return ids ? (end - begin) * 4 : static_cast<int64_t>(text.bytes.size()); }
};

/// Cuts an input into units.
class InputReader {
 public:
  virtual ~InputReader() = default;
  virtual bool Next(InputUnit& unit) = 0;  ///< false: the end
};

/// `at`: where to begin in inputs[at.input].
std::unique_ptr<InputReader> OpenInput(const DataInput& input, const InputPosition& at);

/// Thread-safe. Throws UsageError or RuntimeError naming file and place.
Encoded EncodeUnit(const InputUnit& unit, const Encoding& encoding, const std::string& field);

}  // namespace ds
