#include "runtime/job/deepspeed_values.h"

#include <algorithm>

#include "runtime/base/number.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

std::vector<std::string> Alternatives(const std::string& accepts) {
  std::vector<std::string> out;
  for (size_t start = 0; start <= accepts.size();) {
    const size_t end = std::min(accepts.find('|', start), accepts.size());
    out.push_back(accepts.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

bool Matches(const Value& value, const std::string& alternative) {
  if (alternative == "any") return true;
  if (alternative == "off") return IsOff(value);
  if (value.kind == Value::Kind::list) return value.items.empty() && alternative == "[]";
  if (value.kind == Value::Kind::map) return value.fields.empty() && alternative == "{}";
  if (IsNumber(alternative) && IsNumber(value.text)) {
    Value wanted = value;
    wanted.text = alternative;
    return AsDouble(wanted) == AsDouble(value);
  }
  return Lower(value.text) == Lower(alternative);
}

}  // namespace

void CheckType(const Value& value, DeepSpeedType type) {
  switch (type) {
    case DeepSpeedType::boolean:
      AsBool(value);
      return;
    case DeepSpeedType::integer:
      AsInteger(value);
      return;
    case DeepSpeedType::number:
      AsDouble(value);
      return;
    case DeepSpeedType::text:
      AsString(value);
      return;
    case DeepSpeedType::list:
      if (value.kind != Value::Kind::list) throw ValueError(value, "not a list; write one in brackets, [...]");
      return;
    case DeepSpeedType::texts:
      if (value.kind == Value::Kind::map) throw ValueError(value, "not a text; write one, or a list of them");
      return;
    case DeepSpeedType::map:
      if (value.kind != Value::Kind::map)
        throw ValueError(value, "a section is wanted; write its keys in braces, {...}");
      return;
    case DeepSpeedType::any:
      return;
  }
}

bool IsAuto(const Value& value) { return value.kind == Value::Kind::scalar && Lower(value.text) == "auto"; }

bool IsOff(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return true;
    case Value::Kind::scalar:
      return Lower(value.text) == "false" || Lower(value.text) == "none";
    case Value::Kind::list:
      return value.items.empty();
    case Value::Kind::map:
      break;
  }
  for (const char* key : {"enabled", "deepcompile", "shared_parameters"}) {  // a section's switch, or where it is
    if (const Value* enabled = value.Find(key)) return IsOff(*enabled);
  }
  return std::all_of(value.fields.begin(), value.fields.end(), [](const auto& field) { return IsOff(field.second); });
}

bool IsAccepted(const Value& value, const std::string& accepts) {
  if (value.is_null()) return true;
  const std::vector<std::string> alternatives = Alternatives(accepts);
  return std::any_of(alternatives.begin(), alternatives.end(), [&](const std::string& a) { return Matches(value, a); });
}

std::string ShowAccepted(const std::string& accepts) {
  std::vector<std::string> shown;
  for (const std::string& alternative : Alternatives(accepts)) {
    if (alternative == "off") shown.push_back("enabled: false");
    if (alternative != "off" && (alternative != "null" || accepts == "null")) shown.push_back(alternative);
  }
  return Join(shown, " or ");
}

}  // namespace ds
