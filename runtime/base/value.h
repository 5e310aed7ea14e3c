// A tree of configuration values that remembers where each came from: what YAML, JSON and --set are read into before
// anything looks at their meaning. One type, so one rule for numbers, positions and unknown keys.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ds {

/// Where a value was written. Printed as "file:line:column", "--set", "default", ...
struct Position {
  std::string file;
  int line = 0;    ///< from 1; 0: the place has no lines (a flag)
  int column = 0;  ///< from 1
  std::string str() const;
};

struct Value {
  enum class Kind { null, scalar, list, map };
  // Here `fields` is of an incomplete type: what destroys it stands in value.cc, or clang 14 looks into the pair too
  // soon.
  Value();
  ~Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;

  Kind kind = Kind::null;
  std::string text;                                   ///< of a scalar, as written, quotes and escapes resolved
  bool quoted = false;                                ///< the scalar was in quotes: a string unless a number is wanted
  std::vector<Value> items;                           ///< of a list
  std::vector<std::pair<std::string, Value>> fields;  ///< of a map, in the order written; keys are unique
  Position where;
  Position key_where;  ///< of a map's field: where its key stands

  /// The field `key`, or nullptr.
  const Value* Find(const std::string& key) const;
  Value* Find(const std::string& key);
  bool is_null() const { return kind == Kind::null; }
};

}  // namespace ds
