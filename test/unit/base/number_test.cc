#include "runtime/base/number.h"

#include <functional>

#include "runtime/base/text.h"
#include "test/catch.h"

namespace ds {
namespace {

Value Text(const std::string& text, bool quoted = false) {
  Value value;
  value.kind = Value::Kind::scalar;
  value.text = text;
  value.quoted = quoted;
  value.where = {"f.yaml", 3, 5};
  return value;
}

std::string Failure(const std::function<void()>& read) {
  try {
    read();
  } catch (const ValueError& error) {
    return error.what();
  }
  return "accepted";
}

bool Contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("integers are exact in every spelling") {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"-0", 0},
                                                   {"16", 16},
                                                   {"+16", 16},
                                                   {"-16", -16},
                                                   {"2e8", 200'000'000},
                                                   {"5E8", 500'000'000},
                                                   {"5e+8", 500'000'000},
                                                   {"3.0", 3},
                                                   {"1.5e3", 1500},
                                                   {"1500e-2", 15},
                                                   {".5e1", 5},
                                                   {"2.", 2},
                                                   {"0e999999999999999999", 0},
                                                   {"0.000e5", 0},
                                                   {"9223372036854775807", INT64_MAX},
                                                   {"-9223372036854775808", INT64_MIN},
                                                   {"9.223372036854775807e18", INT64_MAX}};
  for (const auto& [text, value] : cases) {
    CAPTURE(text);
    CHECK(AsInteger(Text(text)) == value);
    CHECK(AsInteger(Text(text, true)) == value);
  }
  CHECK(AsUnsigned(Text("18446744073709551615")) == UINT64_MAX);
}

TEST_CASE("what is no integer is refused with the reason") {
  const std::pair<const char*, const char*> cases[] = {{"2.5", "a fraction"},
                                                       {"1e-5", "a fraction"},
                                                       {"1.55e1", "a fraction"},
                                                       {"1_000", "underscores"},
                                                       {"1,000", "commas"},
                                                       {"0x10", "only decimal"},
                                                       {"010", "leading zeros"},
                                                       {"-007", "leading zeros"},
                                                       {".inf", "finite"},
                                                       {"NaN", "finite"},
                                                       {"abc", "not a number"},
                                                       {"", "not a number"},
                                                       {" 1", "not a number"},
                                                       {"1 ", "not a number"},
                                                       {"1e", "not a number"},
                                                       {"e5", "not a number"},
                                                       {".", "not a number"},
                                                       {"--1", "not a number"},
                                                       {"true", "not a number"},
                                                       {"16x", "not a number"},
                                                       {"9223372036854775808", "beyond 64 bits"},
                                                       {"-9223372036854775809", "beyond 64 bits"},
                                                       {"1e19", "beyond 64 bits"},
                                                       {"1e999999999999", "beyond 64 bits"}};
  for (const auto& [text, reason] : cases) {
    CAPTURE(text);
    const std::string failure = Failure([&] { AsInteger(Text(text)); });
    CHECK(Contains(failure, reason));
    CHECK(failure.substr(0, 12) == "f.yaml:3:5: ");
  }
  CHECK(Contains(Failure([] { AsUnsigned(Text("-1")); }), "negative"));
  CHECK(Contains(Failure([] { AsUnsigned(Text("18446744073709551616")); }), "beyond 64 bits"));
  Value list;
  list.kind = Value::Kind::list;
  CHECK(Contains(Failure([&] { AsInteger(list); }), "not a list"));
  CHECK(Contains(Failure([] { AsInteger(Value()); }), "not null"));
}

TEST_CASE("doubles") {
  CHECK(AsDouble(Text("1e-5")) == 1e-5);
  CHECK(AsDouble(Text("+.5")) == 0.5);
  CHECK(AsDouble(Text("-2.")) == -2.0);
  CHECK(AsDouble(Text("0.1", true)) == 0.1);
  CHECK(AsDouble(Text("5e8")) == 5e8);
  CHECK(Contains(Failure([] { AsDouble(Text("1e400")); }), "beyond what a double holds"));
  CHECK(Contains(Failure([] { AsDouble(Text("inf")); }), "finite"));
  CHECK(Contains(Failure([] { AsDouble(Text("1_0.5")); }), "underscores"));
}

TEST_CASE("booleans and text") {
  CHECK(AsBool(Text("true")));
  CHECK_FALSE(AsBool(Text("False")));
  CHECK(AsBool(Text("true", true)));
  for (const char* text : {"yes", "on", "1", "0", ""}) {
    CAPTURE(text);
    CHECK(Contains(Failure([&] { AsBool(Text(text)); }), "neither true nor false"));
  }
  CHECK(AsString(Text("12")) == "12");
  CHECK_THROWS_AS(AsString(Value()), ValueError);
}

TEST_CASE("byte sizes") {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"67108864", 67108864},
                                                   {"64MiB", 67108864},
                                                   {"64 MiB", 67108864},
                                                   {"64mib", 67108864},
                                                   {"1.5GiB", 1610612736},
                                                   {"2GB", 2000000000},
                                                   {"1e3KB", 1000000},
                                                   {"1TiB", int64_t{1} << 40},
                                                   {"3B", 3},
                                                   {"0.5KiB", 512},
                                                   {"1e9", 1000000000}};
  for (const auto& [text, bytes] : cases) {
    CAPTURE(text);
    CHECK(AsBytes(Text(text)) == bytes);
  }
  const std::pair<const char*, const char*> bad[] = {
      {"64M", "unknown unit 'M'"},       {"64Gib2", "not a number"}, {"-1MiB", "negative"},
      {"0.1B", "whole number of bytes"}, {"1e30", "below 2^63"},     {"MiB", "not a number"},
      {"1_0MiB", "underscores"},         {"9e6TiB", "below 2^63"},   {"9223372036854775808", "below 2^63"}};
  for (const auto& [text, reason] : bad) {
    CAPTURE(text);
    CHECK(Contains(Failure([&] { AsBytes(Text(text)); }), reason));
  }
}

TEST_CASE("the nearest name") {
  CHECK(EditDistance("steps", "stpes") == 1);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(Nearest("stpes", {"steps", "keep"}) == "steps");
  CHECK(Nearest("TRAINING", {"job", "model", "training"}) == "training");  // not the shortest
  CHECK(Nearest("Job", {"JOB", "job"}) == "JOB");                          // the first of equals
  CHECK(Nearest("x", {}).empty());
}

TEST_CASE("a message never breaks a line or grows without bound") {
  CHECK(Describe(Text("a\nb")) == "a b");
  CHECK(Describe(Text(std::string(1000, 'x'))).size() < 100);
  CHECK(Describe(Text("")) == "\"\"");
}

}  // namespace
}  // namespace ds
