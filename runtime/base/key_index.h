// Finds the fields of a map while it is read: duplicate keys of large maps are found without a quadratic search.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "runtime/base/value.h"

namespace ds {

/// Of one map, to whose fields keys are only ever appended.
class KeyIndex {
 public:
  /// The field `key` of `map`, or nullptr.
  const Value* Find(const Value& map, const std::string& key) {
    constexpr size_t kFew = 16;  // so many are found faster one by one
    if (map.fields.size() <= kFew) return map.Find(key);
    for (; indexed_ < map.fields.size(); ++indexed_) by_hash_.emplace(Hash(map.fields[indexed_].first), indexed_);
    const auto [first, last] = by_hash_.equal_range(Hash(key));
    for (auto i = first; i != last; ++i) {
      const auto& [name, value] = map.fields[i->second];
      if (name == key) return &value;
    }
    return nullptr;
  }

 private:
  static size_t Hash(const std::string& key) { return std::hash<std::string>()(key); }

  size_t indexed_ = 0;  // fields that by_hash_ knows
  std::unordered_multimap<size_t, size_t> by_hash_;
};

}  // namespace ds
