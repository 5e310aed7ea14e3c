// The errors found in a job spec, collected so that a user sees all of them at once.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/number.h"
#include "runtime/base/value.h"

namespace ds {

/// `text` on one line: control characters, which keys may have, become blanks.
std::string OneLine(std::string text);

class Problems {
 public:
  /// `root` is the tree that is read; it gives the place of a key. Not owned; may be null.
  explicit Problems(const Value* root) : root_(root) {}

  /// "where: key: value: reason". This one and those below throw as ThrowIfAny does once there are 100 problems.
  void Add(const std::string& key, const ValueError& error);
  /// The same about the value of `key` as it stands in the tree; where it is absent, at the nearest section around it.
  void Add(const std::string& key, const std::string& reason);
  /// About the key itself, at the place of the key: "where: key: reason".
  void AddKey(const std::string& key, const Value& value, const std::string& reason);
  /// A whole line.
  void AddLine(const std::string& line);

  /// Whether nothing has been said about any of the keys: a check that builds on them makes sense.
  bool Good(std::initializer_list<const char*> keys) const;

  /// Which of keys that do not fit together is told of: the first that --set wrote, else the first that is written,
  /// else the first.
  std::string Blamed(std::initializer_list<const char*> keys) const;

  /// Throws one UsageError with a line for each problem, in the order found; returns where there is none.
  void ThrowIfAny() const;

 private:
  const Value* root_;
  std::vector<std::string> lines_;
  std::set<std::string> bad_;
};

/// The value at a dotted path below `root`, or nullptr.
const Value* FindPath(const Value& root, const std::string& path);

}  // namespace ds
