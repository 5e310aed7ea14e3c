// One rule for what the text of a Value means, wherever it was written: YAML, JSON or --set.
//
// Numbers: optional sign, decimal digits with an optional point, optional exponent: 12, 5e8, 1e-5, .5, 2.50E+3. Where
// an integer is wanted the same spellings hold and the value must be whole: 2e8 and 3.0 are integers, 2.5 is not. Not
// numbers: underscores, thousands commas, hexadecimal, leading zeros (octal to some readers), inf, nan. A number in
// quotes is read as the number where one is wanted. Values are exact: nothing is rounded to an integer, nothing wraps
// around.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/value.h"

namespace ds {

/// A value that cannot be read as what is wanted: "where: value: reason; what to do".
class ValueError : public UsageError {
 public:
  ValueError(const Value& value, const std::string& reason);
  /// "reason; what to do", for callers that name the key too.
  const std::string& reason() const { return reason_; }
  const Position& where() const { return where_; }
  const std::string& shown() const { return shown_; }  ///< the value, as Describe tells it

 private:
  Position where_;
  std::string shown_;
  std::string reason_;
};

int64_t AsInteger(const Value& value);
uint64_t AsUnsigned(const Value& value);
double AsDouble(const Value& value);  ///< always finite
/// true or false, in any case, quoted or not.
bool AsBool(const Value& value);
/// The text of any scalar.
const std::string& AsString(const Value& value);
/// Bytes: a whole number, or a number and a unit, as in 64MiB, 1.5 GiB, 2GB: B, KiB, MiB, GiB, TiB (powers of 1024),
/// KB, MB, GB, TB (powers of 1000), in any case. Not negative.
int64_t AsBytes(const Value& value);

/// Whether `text` is a number by the rule above.
bool IsNumber(std::string_view text);

/// A value as messages show it: a scalar's text (shortened), "a list", "a map", "null".
std::string Describe(const Value& value);

}  // namespace ds
