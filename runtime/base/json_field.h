// One string out of a JSON object, without building the rest: what lines of JSON are read with. Memory beyond the text
// is that of the longest string in it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

struct JsonField {
  static constexpr size_t kMostNames = 16;
  bool object = false;  ///< the text is an object
  int depth = -1;       ///< of the object that holds the field, 0: the outermost; -1: there is no such field
  bool string = false;  ///< the field is a string: `text`, escapes resolved
  std::string text;
  std::vector<std::string> names;  ///< the first keys of the outermost object, for messages
};

/// The field `field` of the JSON object `text`. A dotted name leads into objects: `meta.text` is the key `text` in the
/// object `meta`, unless a key is written `meta.text` itself: the outermost wins. All of the text is checked as
/// ParseJson checks it, but that other keys may be there twice. Throws UsageError "name:line:column: reason".
JsonField FindJsonString(std::string_view text, const std::string& field, const std::string& name);

}  // namespace ds
