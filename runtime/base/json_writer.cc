#include <charconv>
#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/text.h"

namespace ds {

std::string JsonString(std::string_view text) {
  static const char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : RepairUtf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte < 0x20 || byte == 0x7F) {
          out += "\\u00";
          out += hex[byte >> 4];
          out += hex[byte & 15];
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  if (value == 0 && std::signbit(value)) return "-0.0";  // "-0" reads back as the integer 0 in some languages
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  text_ += JsonString(key);
  text_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view text) {
  Separate();
  text_ += text;
  return *this;
}

void JsonWriter::Separate() {
  if (!first_ && !after_key_) text_ += ',';
  first_ = false;
  after_key_ = false;
}

}  // namespace ds
