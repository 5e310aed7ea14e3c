#include "runtime/base/json.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/number.h"
#include "test/catch.h"

namespace ds {
namespace {

std::string Failure(const std::string& text, const JsonOptions& options = {}) {
  try {
    ParseJson(text, "f.json", options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("JSON values keep their text and their place") {
  const Value root = ParseJson("{\n  \"a\": [1, -2.5e3, \"x\\ty\"],\n\t\"b\": {\"c\": null, \"d\": true}}\n", "f.json");
  REQUIRE(root.kind == Value::Kind::map);
  CHECK(root.where.str() == "f.json:1:1");
  const Value& a = *root.Find("a");
  CHECK(a.key_where.str() == "f.json:2:3");
  CHECK(a.where.str() == "f.json:2:8");
  REQUIRE(a.items.size() == 3);
  CHECK(a.items[0].text == "1");
  CHECK_FALSE(a.items[0].quoted);
  CHECK(a.items[1].text == "-2.5e3");
  CHECK(a.items[1].where.str() == "f.json:2:12");
  CHECK(a.items[2].text == "x\ty");
  CHECK(a.items[2].quoted);
  const Value& b = *root.Find("b");
  CHECK(b.key_where.str() == "f.json:3:2");
  CHECK(b.Find("c")->is_null());
  CHECK(b.Find("d")->text == "true");
  CHECK(b.Find("e") == nullptr);
}

TEST_CASE("JSON strings: escapes, surrogates, UTF-8") {
  const auto text = [](const std::string& json) { return ParseJson(json, "f").text; };
  CHECK(text(R"("\"\\\/\b\f\n\r\t")") == "\"\\/\b\f\n\r\t");
  CHECK(text(R"("\u00e9\u20AC")") == "\xC3\xA9\xE2\x82\xAC");
  CHECK(text(R"("\ud83d\ude00")") == "\xF0\x9F\x98\x80");
  CHECK(text("\"\xC3\xA9\"") == "\xC3\xA9");
  CHECK(text("\xEF\xBB\xBF\"bom\"") == "bom");
  CHECK(text(R"("\u0000")") == std::string(1, '\0'));
}

TEST_CASE("JSON errors name their place") {
  struct Case {
    const char* text;
    const char* where;
    const char* reason;
  };
  const Case cases[] = {
      {"", "f.json:1:1: ", "empty"},
      {"{\"a\": 1,}", "f.json:1:8: ", "comma after the last"},
      {"[1,]", "f.json:1:3: ", "comma after the last"},
      {"[1 2]", "f.json:1:4: ", "',' or ']'"},
      {"{\"a\" 1}", "f.json:1:6: ", "':'"},
      {"{a: 1}", "f.json:1:2: ", "key in double quotes"},
      {"[1\n, // x\n 2]", "f.json:2:3: ", "a value is wanted, not '/'"},
      {"{\"a\":\n  tru}", "f.json:2:3: ", "'tru'"},
      {"[01]", "f.json:1:2: ", "'01'"},
      {"[1.]", "f.json:1:2: ", "'1.'"},
      {"[.5]", "f.json:1:2: ", "'.5'"},
      {"[+1]", "f.json:1:2: ", "'+1'"},
      {"[1e]", "f.json:1:2: ", "'1e'"},
      {"[1_000]", "f.json:1:2: ", "'1_000'"},
      {"[NaN]", "f.json:1:2: ", "'NaN'"},
      {"[1] 2", "f.json:1:5: ", "after the end"},
      {"\n [1", "f.json:2:2: ", "not closed"},
      {"{\"a\": 1", "f.json:1:1: ", "not closed"},
      {"\"abc", "f.json:1:1: ", "not closed"},
      {"\"a\nb\"", "f.json:1:1: ", "not closed"},
      {"\"a\tb\"", "f.json:1:3: ", "control character"},
      {"\"a\xFF\"", "f.json:1:3: ", "not UTF-8"},
      {"\"\xC0\x80\"", "f.json:1:2: ", "not UTF-8"},          // overlong
      {"\"\xED\xA0\x80\"", "f.json:1:2: ", "not UTF-8"},      // a surrogate
      {"\"\xF4\x90\x80\x80\"", "f.json:1:2: ", "not UTF-8"},  // above U+10FFFF
      {"\"\\x\"", "f.json:1:2: ", "unknown escape"},
      {"\"\\u12g4\"", "f.json:1:6: ", "hexadecimal"},
      {"\"\\ud83d\"", "f.json:1:2: ", "high surrogate"},
      {"\"\\ud83d\\u0041\"", "f.json:1:2: ", "high surrogate"},
      {"\"\\ude00\"", "f.json:1:2: ", "low surrogate"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const std::string failure = Failure(c.text);
    CHECK(failure.substr(0, std::strlen(c.where)) == c.where);
    CHECK(Contains(failure, c.reason));
  }
}

TEST_CASE("JSON duplicate keys are an error that names both") {
  CHECK(Failure("{\"a\": 1,\n \"a\": 2}") == "f.json:2:2: a: duplicate key; the first is at f.json:1:2, remove one");
  std::vector<std::string> duplicates;
  const Value root = ParseJson("{\"a\": 1, \"a\": 2, \"b\": {\"c\": 1, \"c\": 1}}", "f.json", {}, &duplicates);
  CHECK(duplicates.size() == 2);
  CHECK(root.Find("a")->text == "1");
}

TEST_CASE("JSON nesting is bounded") {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  CHECK(Failure(nested(100)) == "accepted");
  CHECK(Contains(Failure(nested(102)), "nested deeper"));
  CHECK(Contains(Failure(std::string(1'000'000, '[')), "nested deeper"));
}

TEST_CASE("lenient JSON reads DeepSpeed's HJSON comments and trailing commas") {
  JsonOptions lenient;
  lenient.lenient = true;
  const Value root = ParseJson("# top\n{ // a\n \"a\": 1, /* b\n c */ \"b\": [2, 3,],\n}\n# end", "f", lenient);
  CHECK(root.Find("a")->text == "1");
  CHECK(root.Find("b")->items.size() == 2);
  CHECK(root.Find("b")->where.str() == "f:4:12");
  CHECK(Contains(Failure("[1,,]", lenient), "f.json:1:4"));
  CHECK(Contains(Failure("[1 /* x", lenient), "f.json:1:4: the comment is not closed"));
  CHECK(ParseJson("\"a // b # c\"", "f", lenient).text == "a // b # c");
}

TEST_CASE("the writer's numbers read back to the same value") {
  const double cases[] = {
      0.1, 1.0 / 3, 1e300, -2.5e-308, 5e-324, 1e5, 123456789012345680.0, 3.0, std::numeric_limits<double>::max()};
  for (const double value : cases) {
    CAPTURE(value);
    CHECK(std::strtod(JsonNumber(value).c_str(), nullptr) == value);
    CHECK(ParseJson(JsonNumber(value), "f").kind == Value::Kind::scalar);
  }
  CHECK(AsDouble(ParseJson(JsonNumber(0.1), "f")) == 0.1);
  CHECK(JsonNumber(static_cast<double>(0.1f)) == "0.10000000149011612");
  CHECK(JsonNumber(-0.0) == "-0.0");
  CHECK(JsonNumber(std::nan("")) == "null");
  CHECK(JsonNumber(-std::numeric_limits<double>::infinity()) == "null");
}

TEST_CASE("the writer punctuates and escapes") {
  JsonWriter json;
  json.BeginObject().Field("step", 3).Field("big", UINT64_MAX).Field("ok", true).Field("loss", 2.5);
  json.Field("name", std::string("a\"b\\\n\x01\xFF")).Key("none").Null();
  json.Key("list").BeginList().Write(1).Write("x").BeginList().EndList().BeginObject().EndObject().EndList();
  json.Key("peak").BeginObject().Field("device", int64_t{-1}).EndObject().EndObject();
  CHECK(
      json.str() ==
      "{\"step\":3,\"big\":18446744073709551615,\"ok\":true,\"loss\":2.5,\"name\":\"a\\\"b\\\\\\n\\u0001\xEF\xBF\xBD\","
      "\"none\":null,\"list\":[1,\"x\",[],{}],\"peak\":{\"device\":-1}}");
  const Value back = ParseJson(json.str(), "f");
  CHECK(back.Find("name")->text == "a\"b\\\n\x01\xEF\xBF\xBD");
}

TEST_CASE("JSON: a duplicate among many keys is found; values can be limited") {
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += "\"k" + std::to_string(i) + "\": 1,";
  CHECK(ParseJson(many + "\"k\": 2}", "f").fields.size() == 5001);
  const std::string message = Failure(many + "\"k77\": 2}");
  CHECK(message.find("k77: duplicate key; the first is at f.json:1:") != std::string::npos);
  CHECK(Failure("{\"a\\nb\": 1, \"a\\nb\": 2}").find("a?b: duplicate key") != std::string::npos);

  JsonOptions few;
  few.max_values = 4;
  CHECK(ParseJson("[1, 2, 3]", "f", few).items.size() == 3);
  CHECK(Contains(Failure("[1, 2, 3, 4]", few), "more than 4 values"));
}

}  // namespace
}  // namespace ds
