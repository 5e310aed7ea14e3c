// The compiled normalization rules of a SentencePiece model, checked: the library follows them without bounds.
#pragma once

#include <string_view>

namespace ds {

/// `rules`: normalizer_spec.precompiled_charsmap: the size of a trie in 4 bytes, the trie (a double array in the form
/// of Darts-clone, units of 4 bytes), texts that end with a zero byte. Every path from the root stays inside the trie
/// and ends, no text has more rules at one place than the library has room for, and every value is where a text is.
/// Throws UsageError with the reason: that is not so.
void CheckNormalizationRules(std::string_view rules);

}  // namespace ds
