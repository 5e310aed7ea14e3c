#include "runtime/job/tokenizer_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

[[noreturn]] void Refuse(const std::string& reason) { throw UsageError(reason); }

/// One field of a Protocol Buffers message in its wire format.
struct WireField {
  uint64_t number = 0;
  int type = 0;            ///< 0: varint, 1: 8 bytes, 2: length and bytes, 5: 4 bytes
  uint64_t value = 0;      ///< of types 0, 1 and 5
  std::string_view bytes;  ///< of type 2
};

/// Reads the fields of a message one after another.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  /// The next field; nothing at the end.
  std::optional<WireField> Next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t tag = Varint();
    WireField field;
    field.number = tag >> 3, field.type = static_cast<int>(tag & 7);
    if (field.number == 0) Broken();
    switch (field.type) {
      case 0:
        field.value = Varint();
        break;
      case 1:
        field.value = Fixed<uint64_t>();
        break;
      case 2:
        field.bytes = Take(Varint());
        break;
      case 5:
        field.value = Fixed<uint32_t>();
        break;
      default:
        Broken();
    }
    return field;
  }

 private:
  [[noreturn]] static void Broken() { Refuse("it is no SentencePiece model, or a damaged one"); }
  std::string_view Take(uint64_t count) {
    if (count > rest_.size()) Broken();
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    Broken();
  }
  template <class T>
  T Fixed() {
    T value;
    std::memcpy(&value, Take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view rest_;
};

void RequireType(const WireField& field, int type) {
  if (field.type != type) Refuse("it is no SentencePiece model, or a damaged one");
}

/// ModelProto.SentencePiece. The library ends the program on some of what is refused here.
void CheckPiece(std::string_view message, int64_t index) {
  const std::string name = "its piece " + std::to_string(index);
  std::string_view piece;
  WireReader reader(message);
  while (const std::optional<WireField> field = reader.Next()) {
    if (field->number == 1) {
      RequireType(*field, 2);
      piece = field->bytes;
    } else if (field->number == 2) {
      RequireType(*field, 5);
      if (!std::isfinite(std::bit_cast<float>(static_cast<uint32_t>(field->value))))
        Refuse(name + " has a score that is no number: the file is damaged");
    } else if (field->number == 3) {
      RequireType(*field, 0);
      if (field->value < 1 || field->value > 6) Refuse(name + " is of an unknown kind: the file is damaged");
    }
  }
  if (piece.empty()) Refuse(name + " is empty: the file is damaged");
  for (std::string_view rest = piece; !rest.empty();) {
    const size_t length = Utf8Length(rest);
    if (length == 0 || rest[0] == '\0') Refuse(name + " is no UTF-8 text: the file is damaged");
    rest.remove_prefix(length);
  }
}

void ReadTrainerSpec(std::string_view message, SentencePieceFile& file) {
  WireReader reader(message);
  while (const std::optional<WireField> field = reader.Next()) {
    if (field->number == 22) file.splits_at_spaces = field->value != 0;
    if (field->number == 24 && field->value != 0) file.splits_at_spaces = false;  // spaces stand at the end of pieces
    if (field->number == 35) file.byte_fallback = field->value != 0;
  }
}

void ReadNormalizerSpec(std::string_view message, SentencePieceFile& file) {
  WireReader reader(message);
  while (const std::optional<WireField> field = reader.Next()) {
    if (field->number == 2) {
      RequireType(*field, 2);
      file.normalization = field->bytes;
    }
    if (field->number == 3) file.adds_space = field->value != 0;
    if (field->number == 4) file.removes_spaces = field->value != 0;
    if (field->number == 5) file.escapes_spaces = field->value != 0;
  }
}

}  // namespace

SentencePieceFile ReadSentencePieceFile(std::string_view bytes) {
  if (bytes.empty()) Refuse("it is empty");
  SentencePieceFile file;
  WireReader reader(bytes);
  while (const std::optional<WireField> field = reader.Next()) {
    if (field->number > 5) continue;  // extensions
    RequireType(*field, 2);
    if (field->number == 1) CheckPiece(field->bytes, file.pieces++);
    if (field->number == 2) ReadTrainerSpec(field->bytes, file);
    if (field->number == 3) ReadNormalizerSpec(field->bytes, file);
  }
  if (file.pieces == 0) Refuse("it is no SentencePiece model: it has no pieces");
  return file;
}

std::string SentencePieceId(std::string_view bytes) { return "sp-" + ChecksumText(Checksum(bytes)); }

std::string ReadTokenizerFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    throw UsageError("there is no tokenizer file " + path +
                     "; name `bytes` or a SentencePiece model, which `ds-convert tokenizer` trains");
  if (!std::filesystem::is_regular_file(path, error))
    throw UsageError(path + " is not a regular file; a tokenizer is `bytes` or a SentencePiece model");
  try {
    return ReadFile(path);
  } catch (const RuntimeError& failure) {
    throw UsageError(std::string("tokenizer: ") + failure.what());
  }
}

TokenizerIdentity IdentifyTokenizer(const std::string& name) {
  if (name == kByteTokenizer) return {kByteTokenizer, kByteVocabulary};
  const std::string bytes = ReadTokenizerFile(name);
  try {
    return {SentencePieceId(bytes), ReadSentencePieceFile(bytes).pieces};
  } catch (const UsageError& error) {
    throw UsageError("the tokenizer " + name + " cannot be used: " + error.what());
  }
}

}  // namespace ds
