// Ranks as options name them: `all`, `none`, or numbers and ranges, as in 0,4-7.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ds {

class RankSet {
 public:
  RankSet() = default;  ///< all
  bool Has(int rank) const { return !chosen_ || (*chosen_)[static_cast<size_t>(rank)]; }

 private:
  friend RankSet ParseRankSet(const std::string& flag, const std::string& text, int world);
  std::optional<std::vector<bool>> chosen_;  ///< by rank; nothing: all
};

/// `text` empty: all. Throws UsageError that begins with `flag`: an empty part, what is no number, a range that runs
/// backwards, a rank that a job of `world` ranks has not.
RankSet ParseRankSet(const std::string& flag, const std::string& text, int world);

}  // namespace ds
