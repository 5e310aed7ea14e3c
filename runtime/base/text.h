// Small helpers over text: UTF-8, and the nearest of several names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// Length in bytes of the well-formed UTF-8 sequence at the start of `text`; 0 where it is malformed (overlong forms,
/// surrogates and values above U+10FFFF are malformed) or empty.
size_t Utf8Length(std::string_view text);

/// Appends the UTF-8 form of a Unicode scalar value.
void AppendUtf8(std::string& out, char32_t code);

/// `text` with each malformed byte replaced by U+FFFD.
std::string RepairUtf8(std::string_view text);

/// `text` as one line of a message shows it: well-formed UTF-8, '?' for control characters, "..." beyond `most` bytes.
std::string Shown(std::string_view text, size_t most = 80);

/// Fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`
/// (optimal string alignment distance).
size_t EditDistance(std::string_view a, std::string_view b);

/// The candidate nearest to `name`, the first of equals; empty where there is none.
std::string Nearest(std::string_view name, const std::vector<std::string>& candidates);

/// "1 rank", "2 ranks".
std::string Count(int64_t number, std::string_view what);

/// ASCII letters in lower case.
std::string Lower(std::string_view text);

/// The parts joined by `separator`.
std::string Join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace ds
