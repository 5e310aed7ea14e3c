#include "runtime/data/sentencepiece_rules.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/base/error.h"

namespace ds {
namespace {

[[noreturn]] void Damaged() { throw UsageError("its normalization rules are damaged"); }

/// A unit of the double array: a node (label, whether it has a value, distance to its children) or a value.
struct Unit {
  uint32_t bits;
  bool has_value() const { return (bits >> 8 & 1) == 1; }
  uint32_t value() const { return bits & 0x7FFFFFFFu; }
  uint32_t label() const { return bits & 0x800000FFu; }
  uint32_t offset() const { return (bits >> 10) << ((bits & (1u << 9)) >> 6); }
};

class Trie {
 public:
  /// Values lie below `values`.
  Trie(std::string_view bytes, uint32_t values)
      : units_(bytes.size() / sizeof(uint32_t)), values_(values), longest_(units_.size(), kUnknown) {
    if (!units_.empty()) std::memcpy(units_.data(), bytes.data(), units_.size() * sizeof(uint32_t));
  }

  void Check() {
    if (ValuesBelow(At(0).offset(), 0) > kMostValues) Damaged();
  }

 private:
  static constexpr int kUnknown = -1, kOpen = -2;
  static constexpr int kMostValues = 32;   // the library's room for the rules that apply at one place
  static constexpr int kMostBytes = 1024;  // of a rule

  /// The most values on a path from a node whose children are at `base` ^ byte. Nodes may share children, but none is
  /// its own descendant.
  int ValuesBelow(uint32_t base, int depth) {
    At(base | 0xFFu);  // a search looks at base ^ byte, whatever the byte
    if (longest_[base] == kOpen || depth > kMostBytes) Damaged();
    if (longest_[base] != kUnknown) return longest_[base];
    longest_[base] = kOpen;
    int most = 0;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t child = base ^ byte;
      const Unit unit = At(child);
      if (unit.label() != byte) continue;
      const uint32_t next = child ^ unit.offset();
      if (unit.has_value() && At(next).value() >= values_) Damaged();
      most = std::max(most, ValuesBelow(next, depth + 1) + (unit.has_value() ? 1 : 0));
    }
    return longest_[base] = most;
  }
  Unit At(uint32_t index) const {
    if (index >= units_.size()) Damaged();
    return {units_[index]};
  }

  std::vector<uint32_t> units_;
  uint32_t values_;
  std::vector<int> longest_;  // by where a node's children are counted from
};

}  // namespace

void CheckNormalizationRules(std::string_view rules) {
  if (rules.empty()) return;
  uint32_t trie_bytes = 0;
  if (rules.size() <= sizeof trie_bytes) Damaged();
  std::memcpy(&trie_bytes, rules.data(), sizeof trie_bytes);
  rules.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= rules.size() || trie_bytes % sizeof(uint32_t) != 0 || rules.back() != '\0') Damaged();
  Trie(rules.substr(0, trie_bytes), static_cast<uint32_t>(rules.size() - trie_bytes)).Check();
}

}  // namespace ds
