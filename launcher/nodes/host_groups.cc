// Host names, taken together where they differ in a number alone.
#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "launcher/nodes/preflight.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// The last run of digits of a name, and what is around it. Names without one, and numbers too long to count with, are
/// not grouped.
struct Numbered {
  std::string before, after;
  size_t width = 0;  ///< of a number that begins with 0; else 0: any
  uint64_t number = 0;
  bool grouped = false;
};

Numbered Split(const std::string& name) {
  Numbered parts;
  const size_t end = name.find_last_of("0123456789");
  if (end == std::string::npos) return parts;
  size_t begin = end;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  const std::string digits = name.substr(begin, end + 1 - begin);
  if (digits.size() > 9) return parts;
  std::from_chars(digits.data(), digits.data() + digits.size(), parts.number);
  parts.before = name.substr(0, begin);
  parts.after = name.substr(end + 1);
  parts.width = digits.size() > 1 && digits[0] == '0' ? digits.size() : 0;
  parts.grouped = true;
  return parts;
}

std::string Padded(uint64_t number, size_t width) {
  const std::string digits = std::to_string(number);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

std::string Ranges(std::vector<uint64_t> numbers, size_t width) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    parts.push_back(Padded(numbers[i], width) + (j > i ? (j > i + 1 ? "-" : ",") + Padded(numbers[j], width) : ""));
    i = j + 1;
  }
  return Join(parts, ",");
}

}  // namespace

std::string GroupHosts(std::vector<std::string> hosts) {
  struct Group {
    std::vector<uint64_t> numbers;
    std::string only;  ///< the name, where there is one
    size_t place = 0;
  };
  std::map<std::tuple<std::string, std::string, size_t>, Group> groups;
  std::vector<std::pair<size_t, std::string>> texts;  // by the place of the first name
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Numbered parts = Split(hosts[i]);
    if (!parts.grouped) {
      texts.emplace_back(i, hosts[i]);
      continue;
    }
    Group& group = groups[{parts.before, parts.after, parts.width}];
    if (group.numbers.empty()) group.place = i, group.only = hosts[i];
    group.numbers.push_back(parts.number);
  }
  for (const auto& [key, group] : groups) {
    const auto& [before, after, width] = key;
    texts.emplace_back(group.place, group.numbers.size() == 1
                                        ? group.only
                                        : before + "[" + Ranges(group.numbers, width) + "]" + after);
  }
  std::sort(texts.begin(), texts.end());
  std::vector<std::string> names;
  for (const auto& [place, text] : texts) names.push_back(text);
  return Join(names, ", ");
}

}  // namespace ds
