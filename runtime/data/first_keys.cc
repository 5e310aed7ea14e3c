#include "runtime/data/first_keys.h"

namespace ds {

void WriteFirstKeys(const int32_t* tokens, int64_t count, int32_t end_of_document, int32_t* first_key) {
  int32_t begin = 0;
  for (int64_t t = 0; t < count; ++t) {
    first_key[t] = begin;
    if (tokens[t] == end_of_document) begin = static_cast<int32_t>(t + 1);
  }
}

}  // namespace ds
