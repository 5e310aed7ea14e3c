#include "runtime/base/number.h"

#include <charconv>
#include <limits>
#include <optional>

#include "runtime/base/text.h"

namespace ds {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

/// A number taken apart: (-1)^negative * digits * 10^exponent.
struct Decimal {
  bool negative = false;
  std::string digits;    ///< without the point, no zeros in front or at the end; empty: zero
  int64_t exponent = 0;  ///< held within +-10^9
};

/// The decimal that `text` spells, or nullopt where it is no number.
std::optional<Decimal> Parse(std::string_view text) {
  Decimal out;
  size_t i = 0;
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) out.negative = text[i++] == '-';
  const size_t start = i;
  size_t whole = 0;
  size_t fraction = 0;
  for (; i < text.size() && IsDigit(text[i]); ++i, ++whole) out.digits += text[i];
  if (whole > 1 && text[start] == '0') return std::nullopt;
  if (i < text.size() && text[i] == '.') {
    ++i;
    for (; i < text.size() && IsDigit(text[i]); ++i, ++fraction) out.digits += text[i];
  }
  if (whole + fraction == 0) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    bool down = false;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) down = text[i++] == '-';
    const size_t first = i;
    for (; i < text.size() && IsDigit(text[i]); ++i) {
      if (out.exponent < 100'000'000) out.exponent = out.exponent * 10 + (text[i] - '0');
    }
    if (i == first) return std::nullopt;
    if (down) out.exponent = -out.exponent;
  }
  if (i != text.size()) return std::nullopt;
  out.exponent -= static_cast<int64_t>(fraction);
  while (!out.digits.empty() && out.digits.back() == '0') {
    out.digits.pop_back();
    ++out.exponent;
  }
  out.digits.erase(0, out.digits.find_first_not_of('0'));
  return out;
}

std::string Scalar(const Value& value, const char* wanted) {
  if (value.kind != Value::Kind::scalar) {
    throw ValueError(value, std::string("write ") + wanted + ", not " + Describe(value));
  }
  return value.text;
}

/// Why `text` is no number, where a reason can be told.
std::string WhyNotANumber(const std::string& text, const char* wanted) {
  const std::string lower = Lower(text);
  const std::string write = std::string("; write ") + wanted;
  if (text.find('_') != std::string::npos) return "underscores are not part of a number" + write;
  if (text.find(',') != std::string::npos) return "commas are not part of a number" + write;
  if (lower.find("0x") != std::string::npos || lower.find("0o") != std::string::npos) {
    return "only decimal numbers are read" + write;
  }
  if (lower.find("inf") != std::string::npos || lower.find("nan") != std::string::npos) {
    return "the number must be finite" + write;
  }
  const size_t zero = lower.find_first_not_of("+-");
  if (zero != std::string::npos && lower[zero] == '0' && zero + 1 < lower.size() && IsDigit(lower[zero + 1])) {
    return "a number has no leading zeros (they mean octal to some readers)" + write;
  }
  return "not a number" + write;
}

Decimal Number(const Value& value, const char* wanted) {
  const std::string text = Scalar(value, wanted);
  const auto decimal = Parse(text);
  if (!decimal) throw ValueError(value, WhyNotANumber(text, wanted));
  return *decimal;
}

/// The magnitude of a whole decimal; nullopt above 2^64 - 1. Call only where exponent >= 0 or digits are none.
std::optional<uint64_t> Magnitude(const Decimal& decimal) {
  if (decimal.digits.empty()) return 0;
  if (decimal.digits.size() + static_cast<size_t>(decimal.exponent) > 20) return std::nullopt;
  uint64_t out = 0;
  const std::string text = decimal.digits + std::string(static_cast<size_t>(decimal.exponent), '0');
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  if (result.ec != std::errc()) return std::nullopt;
  return out;
}

bool IsWhole(const Decimal& decimal) { return decimal.digits.empty() || decimal.exponent >= 0; }

constexpr const char* kInteger = "a whole number such as 16 or 2e8";
constexpr const char* kNumber = "a number such as 0.5, 16 or 1e-5";
constexpr const char* kBytes = "bytes such as 67108864 or 64MiB";

struct Unit {
  const char* name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"b", 1},
                           {"kib", 1ull << 10},
                           {"mib", 1ull << 20},
                           {"gib", 1ull << 30},
                           {"tib", 1ull << 40},
                           {"kb", 1000ull},
                           {"mb", 1000'000ull},
                           {"gb", 1000'000'000ull},
                           {"tb", 1000'000'000'000ull}};

const Unit& FindUnit(const Value& value, std::string_view name) {
  for (const Unit& unit : kUnits) {
    if (Lower(name) == unit.name) return unit;
  }
  throw ValueError(value, "unknown unit '" + RepairUtf8(name.substr(0, 20)) +
                              "'; the units are B, KiB, MiB, GiB, TiB (1024) and KB, MB, GB, TB (1000)");
}

/// decimal * unit, exactly; nullopt where that is not a whole number or does not fit.
std::optional<int64_t> Scale(const Decimal& decimal, uint64_t unit) {
  Decimal digits = decimal;
  if (digits.digits.size() > 18) return std::nullopt;
  if (digits.exponent > 18) return digits.digits.empty() ? std::optional<int64_t>(0) : std::nullopt;
  if (digits.exponent < -40) return digits.digits.empty() ? std::optional<int64_t>(0) : std::nullopt;
  const int64_t exponent = digits.exponent;
  digits.exponent = 0;
  auto product = static_cast<unsigned __int128>(*Magnitude(digits)) * unit;
  for (int64_t i = 0; i < exponent; ++i) {
    product *= 10;
    if (product > static_cast<unsigned __int128>(INT64_MAX)) return std::nullopt;
  }
  for (int64_t i = exponent; i < 0; ++i) {
    if (product % 10 != 0) return std::nullopt;
    product /= 10;
  }
  if (product > static_cast<unsigned __int128>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(product);
}

}  // namespace

ValueError::ValueError(const Value& value, const std::string& reason)
    : UsageError(value.where.str() + ": " + Describe(value) + ": " + reason),
      where_(value.where),
      shown_(Describe(value)),
      reason_(reason) {}

int64_t AsInteger(const Value& value) {
  const Decimal decimal = Number(value, kInteger);
  if (!IsWhole(decimal))
    throw ValueError(value, std::string("a fraction where a whole number is wanted; write ") + kInteger);
  const auto magnitude = Magnitude(decimal);
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (decimal.negative ? 1 : 0);
  if (!magnitude || *magnitude > limit) {
    throw ValueError(value, "beyond 64 bits; the largest is 9223372036854775807, the smallest -9223372036854775808");
  }
  return static_cast<int64_t>(decimal.negative ? 0 - *magnitude : *magnitude);
}

uint64_t AsUnsigned(const Value& value) {
  const Decimal decimal = Number(value, kInteger);
  if (!IsWhole(decimal))
    throw ValueError(value, std::string("a fraction where a whole number is wanted; write ") + kInteger);
  if (decimal.negative && !decimal.digits.empty()) throw ValueError(value, "negative; write 0 or more");
  const auto magnitude = Magnitude(decimal);
  if (!magnitude) throw ValueError(value, "beyond 64 bits; the largest is 18446744073709551615");
  return *magnitude;
}

double AsDouble(const Value& value) {
  Number(value, kNumber);
  std::string_view text = value.text;
  if (text.front() == '+') text.remove_prefix(1);
  double out = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), out);
  if (result.ec != std::errc()) {
    throw ValueError(value, "beyond what a double holds; write a number between 2.3e-308 and 1.7e308, or 0");
  }
  return out;
}

bool AsBool(const Value& value) {
  const std::string text = Lower(Scalar(value, "true or false"));
  if (text == "true") return true;
  if (text == "false") return false;
  throw ValueError(value, "neither true nor false; write one of them");
}

const std::string& AsString(const Value& value) {
  if (value.kind != Value::Kind::scalar) throw ValueError(value, "write a text, not " + Describe(value));
  return value.text;
}

int64_t AsBytes(const Value& value) {
  const std::string text = Scalar(value, kBytes);
  size_t end = text.find_last_of("0123456789.");
  end = end == std::string::npos ? 0 : end + 1;
  const size_t unit_start = text.find_first_not_of(' ', end);
  const std::string number = text.substr(0, end);
  const std::string unit = unit_start == std::string::npos ? "" : text.substr(unit_start);
  const auto decimal = Parse(number);
  if (!decimal) throw ValueError(value, WhyNotANumber(text, kBytes));
  const Unit& factor = FindUnit(value, unit);
  if (decimal->negative && !decimal->digits.empty()) throw ValueError(value, "negative; write 0 or more bytes");
  const auto bytes = Scale(*decimal, factor.bytes);
  if (!bytes) throw ValueError(value, "not a whole number of bytes below 2^63; write a rounder or a smaller one");
  return *bytes;
}

bool IsNumber(std::string_view text) { return Parse(text).has_value(); }

std::string Describe(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::list:
      return "a list";
    case Value::Kind::map:
      return "a map";
    case Value::Kind::scalar:
      break;
  }
  std::string text = RepairUtf8(value.text);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';  // a message stays on one line
  }
  constexpr size_t kMost = 60;
  if (text.size() <= kMost) return text.empty() ? "\"\"" : text;
  return RepairUtf8(text.substr(0, kMost)) + "...";
}

}  // namespace ds
