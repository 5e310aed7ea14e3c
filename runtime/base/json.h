// JSON, both ways: text -> Value with positions, and a writer whose numbers read back to the same value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/value.h"

namespace ds {

struct JsonOptions {
  /// As DeepSpeed's HJSON files have them: comments (`//`, `#`, `/* */`), a trailing comma in lists and objects.
  bool lenient = false;
  int max_depth = 100;           ///< of nested lists and objects
  size_t max_values = SIZE_MAX;  ///< in all: a value takes some 300 bytes of memory for two of text
};

/// Reads one JSON text (RFC 8259; UTF-8; a byte-order mark is skipped). Strings become quoted scalars; numbers and
/// true/false become plain scalars that keep their text (runtime/base/number.h gives them a meaning); null stays null.
/// Throws UsageError "name:line:column: reason". Columns count bytes, from 1. A duplicate key is an error; where
/// `duplicates` is given it is appended there instead and the first value is kept.
Value ParseJson(std::string_view text, const std::string& name, const JsonOptions& options = {},
                std::vector<std::string>* duplicates = nullptr);

/// `text` as a JSON string, with quotes. Malformed UTF-8 is replaced by U+FFFD.
std::string JsonString(std::string_view text);

/// The shortest decimal that reads back to the same double; "null" for NaN and infinities.
std::string JsonNumber(double value);

/// Writes one JSON text on one line: commas and colons are put in by themselves.
///
///     JsonWriter json;
///     json.BeginObject().Field("step", 3).Field("loss", 2.5).Key("peak_bytes").BeginObject().EndObject().EndObject();
///     file.Append(json.str());
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginList() { return Open('['); }
  JsonWriter& EndList() { return Close(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& Null() { return Raw("null"); }
  JsonWriter& Write(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Write(double value) { return Raw(JsonNumber(value)); }
  JsonWriter& Write(int value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(long value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(long long value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(unsigned value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(unsigned long value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(unsigned long long value) { return Raw(std::to_string(value)); }
  JsonWriter& Write(std::string_view value) { return Raw(JsonString(value)); }
  JsonWriter& Write(const char* value) { return Raw(JsonString(value)); }
  JsonWriter& Write(const std::string& value) { return Raw(JsonString(value)); }

  template <typename T>
  JsonWriter& Field(std::string_view key, const T& value) {
    return Key(key).Write(value);
  }

  /// The text so far; a whole JSON text once everything opened is closed.
  const std::string& str() const { return text_; }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Raw(std::string_view text);
  void Separate();

  std::string text_;
  bool first_ = true;       // nothing written yet at this level
  bool after_key_ = false;  // a value comes next
};

}  // namespace ds
