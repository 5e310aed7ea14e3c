#include "runtime/job/preflight_names.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {

std::string CheckNameList() { return Join({kCheckNames.begin(), kCheckNames.end()}, ", "); }

void AddCheckNames(std::string_view text, std::vector<std::string>& names) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name(text.substr(begin, end - begin));
    if (std::find(kCheckNames.begin(), kCheckNames.end(), name) == kCheckNames.end())
      throw UsageError("`" + name + "` is no check of the preflight; these are: " + CheckNameList());
    names.push_back(name);
    begin = end + 1;
  }
  std::vector<std::string> ordered;
  for (const char* name : kCheckNames)
    if (std::find(names.begin(), names.end(), name) != names.end()) ordered.push_back(name);
  names = std::move(ordered);
}

bool IsContainMode(std::string_view name) {
  return name == "auto" || name == "cgroup" || name == "namespace" || name == "process";
}

}  // namespace ds
