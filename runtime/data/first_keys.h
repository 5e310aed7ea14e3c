// Where the documents of a sample begin, as attention within documents wants to know it.
#pragma once

#include <cstdint>

namespace ds {

/// first_key[t] = where in the sample the document of token t begins, for `count` tokens: what AttentionForward
/// (kernels/attention.h) takes. A token `end_of_document` is the last of its document. The first document begins with
/// the sample, be it from its own begin on or from its middle.
void WriteFirstKeys(const int32_t* tokens, int64_t count, int32_t end_of_document, int32_t* first_key);

}  // namespace ds
