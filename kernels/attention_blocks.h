// How the CPU cuts attention into blocks of query rows. Internal to kernels/.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/check.h"

namespace ds::detail {

/// Throws std::invalid_argument unless first_key is absent or what attention.h asks for. Values on a GPU are not looked
/// at.
inline void CheckFirstKey(const char* kernel, const AttentionShape& s, const Tensor& first_key) {
  if (!first_key) return;
  CheckVector(kernel, "first_key", first_key, DType::i32, s.batch * s.tokens);
  if (first_key.device.kind != DeviceKind::cpu) return;
  const int32_t* values = first_key.as<int32_t>();
  for (int64_t i = 0; i < first_key.numel(); ++i) {
    const int64_t t = i % s.tokens, least = t == 0 ? 0 : values[i - 1];
    if (values[i] < least || values[i] > t)
      Check(false, kernel,
            "first_key of sample " + std::to_string(i / s.tokens) + ", token " + std::to_string(t) + " is " +
                std::to_string(values[i]) + "; it is at least " + std::to_string(least) + " and at most " +
                std::to_string(t));
  }
}

/// Query rows [begin, begin + rows) of a sample that see keys from `first` on; the last of them sees `columns` keys.
struct RowBlock {
  int64_t begin, rows, first, columns;
};

/// The blocks of every sample, in order: up to kRows rows that have their first key in common, counted from the first
/// row that has it. So each document of a sample is cut as it would be alone.
class RowBlocks {
 public:
  static constexpr int64_t kRows = 64;

  RowBlocks(const AttentionShape& s, const Tensor& first_key) {
    ends_.push_back(0);
    for (int64_t b = 0; b < s.batch; ++b) {
      AddSample(s.tokens, first_key ? first_key.as<int32_t>() + b * s.tokens : nullptr);
      ends_.push_back(static_cast<int64_t>(blocks_.size()));
    }
  }

  int64_t count() const { return static_cast<int64_t>(blocks_.size()); }  ///< of all samples
  std::span<const RowBlock> Of(int64_t sample) const {
    return {blocks_.data() + ends_[sample], blocks_.data() + ends_[sample + 1]};
  }

  struct Place {
    int64_t sample, head;
    RowBlock block;
  };
  /// The index-th of all blocks of all heads: by sample, then head.
  Place At(int64_t index, int64_t heads) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index / heads);
    const int64_t sample = end - ends_.begin() - 1, of_sample = *end - ends_[sample];
    const int64_t i = index - ends_[sample] * heads;
    return {sample, i / of_sample, blocks_[ends_[sample] + i % of_sample]};
  }

 private:
  void AddSample(int64_t tokens, const int32_t* first_key) {
    for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
      const int64_t first = first_key ? first_key[begin] : 0, most = std::min(tokens, begin + kRows);
      for (end = begin + 1; end < most && (!first_key || first_key[end] == first);) ++end;
      blocks_.push_back({begin, end - begin, first, end - first});
    }
  }

  std::vector<RowBlock> blocks_;
  std::vector<int64_t> ends_;  // of the samples before
};

}  // namespace ds::detail
