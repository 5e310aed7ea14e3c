// JSON, as RFC 8259 has it and with HJSON's comments. What is read prints as JSON that reads back to the same values.
#include "runtime/base/json.h"

#include "runtime/base/error.h"
#include "runtime/base/json_field.h"
#include "test/fuzz/fuzz.h"

using namespace ds;

namespace {

void Print(const Value& value, std::string& out) {
  switch (value.kind) {
    case Value::Kind::null:
      out += "null";
      return;
    case Value::Kind::scalar:
      out += value.quoted ? JsonString(value.text) : value.text;
      return;
    case Value::Kind::list:
      out += '[';
      for (const Value& item : value.items) {
        if (&item != &value.items[0]) out += ',';
        Print(item, out);
      }
      out += ']';
      return;
    case Value::Kind::map:
      out += '{';
      for (const auto& field : value.fields) {
        if (&field != &value.fields[0]) out += ',';
        out += JsonString(field.first) + ':';
        Print(field.second, out);
      }
      out += '}';
  }
}

std::string Printed(const Value& value) {
  std::string out;
  Print(value, out);
  return out;
}

/// One field read without the rest is the field that is found in the whole; it checks what ParseJson checks.
void CheckField(std::string_view text) {
  std::vector<std::string> duplicates;
  Value whole;
  JsonField field;
  bool reads = true;
  try {
    whole = ParseJson(text, "f", {}, &duplicates);
  } catch (const UsageError&) {
    reads = false;
  }
  const bool found =
      fuzz::Guarded(text.size(), {50, 64 << 10}, {"f:"}, [&] { field = FindJsonString(text, "text", "f"); });
  fuzz::Check(reads || !found, "FindJsonString takes what ParseJson refuses", text);
  if (!reads || !duplicates.empty()) return;
  fuzz::Check(found, "FindJsonString refuses what ParseJson takes", text);
  const Value* value = whole.Find("text");
  fuzz::Check((field.depth == 0) == (value != nullptr), "the field is there for one reader alone", text);
  if (value != nullptr && value->quoted) fuzz::Check(field.string && field.text == value->text, "another text", text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::View(data, size);
  CheckField(text);
  for (const bool lenient : {false, true}) {
    JsonOptions options;
    options.lenient = lenient;
    Value value;
    if (!fuzz::Guarded(size, {1000, 64 << 10}, {"f:"}, [&] { value = ParseJson(text, "f", options); })) continue;
    const std::string printed = Printed(value);
    fuzz::Check(Printed(ParseJson(printed, "printed")) == printed, "the values print as others", printed);
  }
  return 0;
}
