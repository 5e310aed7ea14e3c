// YAML text -> Value with positions, by yaml-cpp.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/value.h"

namespace ds {

/// Reads one YAML document (UTF-8). An empty text is null. Plain scalars keep their text: runtime/base/number.h gives
/// it a meaning. Aliases are replaced by copies of what they name (at most 100,000 nodes in all, and 16 MiB of text
/// in copies). Throws UsageError
/// "name:line:column: reason" for text that is not YAML and for what has no meaning here: several documents, keys that
/// are not scalars, tags other than !!str, !!int, !!float, !!bool, !!null, !!map and !!seq, merge keys, nesting beyond
/// 100 levels. Columns count bytes, from 1. A duplicate key is an error; where `duplicates` is given it is appended
/// there instead and the first value is kept.
Value ParseYaml(const std::string& text, const std::string& name, std::vector<std::string>* duplicates = nullptr);

/// `text` as a YAML scalar that reads back as the same string: plain where that is safe, else in double quotes.
std::string YamlScalar(const std::string& text);

}  // namespace ds
