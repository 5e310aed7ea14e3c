// First keys of samples that documents were packed into, as attention.h describes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ds::test {

/// [batch * tokens]. begins: where documents begin, counted over all samples; every sample's first document begins with
/// it, whether named or not. No begins: no first keys.
inline std::vector<int32_t> FirstKeys(int64_t batch, int64_t tokens, const std::vector<int64_t>& begins) {
  std::vector<int32_t> first;
  if (begins.empty()) return first;
  for (int64_t i = 0, begin = 0; i < batch * tokens; ++i) {
    if (i % tokens == 0 || std::count(begins.begin(), begins.end(), i) > 0) begin = i % tokens;
    first.push_back(static_cast<int32_t>(begin));
  }
  return first;
}

}  // namespace ds::test
