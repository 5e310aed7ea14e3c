#include "runtime/run/rank_set.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace ds {
namespace {

/// `part`: what `text` is a part of, as it was written.
int ReadRank(const std::string& flag, const std::string& text, const std::string& part, int world) {
  if (text.empty())
    throw UsageError(flag + ": " + (part.empty() ? "an empty part" : "`" + Shown(part) + "`: a rank is missing") +
                     "; write all, none, or ranks as in 0,4-7");
  int rank = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, rank);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) throw UsageError(flag + ": `" + Shown(text) + "`: not a rank; write all, none, or ranks as in 0,4-7");
  if (result.ec != std::errc() || rank >= world) {
    throw UsageError(flag + ": " + Shown(text) + ": no such rank; the job has ranks 0 to " + std::to_string(world - 1));
  }
  return rank;
}

}  // namespace

RankSet ParseRankSet(const std::string& flag, const std::string& text, int world) {
  RankSet set;
  if (text.empty() || text == "all") return set;
  set.chosen_.emplace(static_cast<size_t>(world), false);
  if (text == "none") return set;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int first = ReadRank(flag, part.substr(0, dash), part, world);
    const int last = dash == std::string::npos ? first : ReadRank(flag, part.substr(dash + 1), part, world);
    if (last < first) throw UsageError(flag + ": " + Shown(part) + ": the range runs backwards");
    std::fill(set.chosen_->begin() + first, set.chosen_->begin() + last + 1, true);
    begin = end + 1;
  }
  return set;
}

}  // namespace ds
