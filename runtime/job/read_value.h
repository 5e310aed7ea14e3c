// Readers of single values, shared by the job spec's table of keys and by that of its deepspeed section. Each throws
// ValueError with "reason; what to do".
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/number.h"
#include "runtime/base/text.h"

namespace ds {

/// A whole number in [low, high].
inline int64_t ReadInteger(const Value& value, int64_t low, int64_t high) {
  const int64_t out = AsInteger(value);
  if (out < low) throw ValueError(value, "too small; write " + std::to_string(low) + " or more");
  if (out > high) throw ValueError(value, "too large; write " + std::to_string(high) + " or less");
  return out;
}

/// A number in [low, high].
inline double ReadNumber(const Value& value, double low, double high) {
  const double out = AsDouble(value);
  if (out < low) throw ValueError(value, "too small; write " + JsonNumber(low) + " or more");
  if (out > high) throw ValueError(value, "too large; write " + JsonNumber(high) + " or less");
  return out;
}

/// A number in (0, infinity).
inline double ReadPositive(const Value& value) {
  const double out = AsDouble(value);
  if (!(out > 0)) throw ValueError(value, "not positive; write a number above 0");
  return out;
}

/// Seconds to wait for something: from `least`, below which `reason` holds, to 1e9, which is thirty years and fits
/// every clock.
inline double ReadWait(const Value& value, double least, const char* reason) {
  const double out = AsDouble(value);
  if (!(out >= least))
    throw ValueError(value, "too small: " + std::string(reason) + "; write " + JsonNumber(least) + " or more");
  if (out > 1e9) throw ValueError(value, "too large; write 1e9 or less");
  return out;
}

/// A number in [0, 1).
inline double ReadFraction(const Value& value) {
  const double out = AsDouble(value);
  if (!(out >= 0 && out < 1)) throw ValueError(value, "outside [0, 1); write 0 or more, and less than 1");
  return out;
}

/// Names of an enumeration's values.
template <typename E>
using Names = std::vector<std::pair<std::string, E>>;

/// A name without what spelling varies in: case, '-', '_' and blanks.
inline std::string Plain(const std::string& name) {
  std::string out;
  for (const char c : Lower(name)) {
    if (c != '-' && c != '_' && c != ' ') out += c;
  }
  return out;
}

template <typename E>
std::string Choices(const Names<E>& names) {
  std::vector<std::string> list;
  for (const auto& entry : names) list.push_back(entry.first);
  return Join(list, ", ");
}

/// One of the names; case, '-' and '_' do not matter.
template <typename E>
E ReadName(const Value& value, const Names<E>& names) {
  const std::string wanted = Plain(AsString(value));
  for (const auto& [name, meaning] : names) {
    if (Plain(name) == wanted) return meaning;
  }
  throw ValueError(value, "not one of the choices; write one of " + Choices(names));
}

template <typename E>
std::string NameOf(E value, const Names<E>& names) {
  for (const auto& [name, meaning] : names) {
    if (meaning == value) return name;
  }
  return "?";
}

}  // namespace ds
