// Small YAML files of settings (a daemon's, a site's): one map, each key known, each place told in errors.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/value.h"

namespace ds {

struct Setting {
  std::string key;
  std::string type;      ///< what may be written, as the documentation tells it
  std::string fallback;  ///< the default, likewise; "-": none, the key must be written
  std::string meaning;
  std::function<void(const Value&)> read;  ///< throws ValueError
};

/// Reads YAML text; `name` stands for the file in messages. Throws UsageError "name:line:column: key: ..." for each
/// thing that is wrong: an unknown key (with the nearest), one that must be there and is not, a value that `read`
/// refuses.
void ReadSettings(const std::string& text, const std::string& name, const std::vector<Setting>& settings);

/// The settings as rows of a table in Markdown.
std::string SettingsTable(const std::vector<Setting>& settings);

}  // namespace ds
