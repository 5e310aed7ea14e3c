#include "runtime/site/settings_file.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/number.h"
#include "runtime/base/text.h"
#include "runtime/job/yaml.h"

namespace ds {

void ReadSettings(const std::string& text, const std::string& name, const std::vector<Setting>& settings) {
  const Value root = ParseYaml(text, name);
  std::vector<std::string> problems, known;
  for (const Setting& setting : settings) known.push_back(setting.key);
  if (!root.is_null() && root.kind != Value::Kind::map) {
    throw UsageError(root.where.str() + ": write keys and values here: " + Join(known, ", "));
  }
  for (const auto& [key, value] : root.fields) {
    const auto setting = std::find_if(settings.begin(), settings.end(), [&](const Setting& s) { return s.key == key; });
    if (setting == settings.end()) {
      if (key.starts_with("_")) continue;  // a comment, as in job files
      problems.push_back(value.key_where.str() + ": " + Shown(key) + ": unknown key; the nearest is " +
                         Nearest(key, known));
      continue;
    }
    try {
      setting->read(value);
    } catch (const ValueError& error) {
      problems.push_back(error.where().str() + ": " + key + ": " + error.shown() + ": " + error.reason());
    }
  }
  for (const Setting& setting : settings) {
    if (setting.fallback == "-" && !root.Find(setting.key)) {
      problems.push_back(name + ": " + setting.key + ": absent; write " + setting.meaning);
    }
  }
  if (!problems.empty()) throw UsageError(Join(problems, "\n"));
}

std::string SettingsTable(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& s : settings) {
    text += "| `" + s.key + "` | " + s.type + " | " + s.fallback + " | " + s.meaning + " |\n";
  }
  return text;
}

}  // namespace ds
