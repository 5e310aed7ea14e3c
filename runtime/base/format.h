// printf's formats as strings.
#pragma once

#include <cstdio>
#include <string>

namespace ds {

/// As std::snprintf writes it, 255 bytes at most: for numbers and short words.
template <class... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace ds
