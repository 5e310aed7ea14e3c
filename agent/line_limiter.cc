#include "agent/line_limiter.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/json.h"

namespace ds {

std::vector<OutputLine> LineLimiter::Admit(Time now, bool error_stream, std::vector<std::string> lines) {
  std::vector<OutputLine> passed = Due(now);
  if (filled_at_) {
    const double seconds = std::chrono::duration<double>(now - *filled_at_).count();
    left_ = std::min(left_ + seconds * rate_, rate_ * kBurstSeconds);
  }
  filled_at_ = now;
  for (std::string& text : lines) {
    // While lines of this second were dropped none pass, so that what passes is a run without holes until it is said.
    const bool pass = rate_ == 0 || (dropped_ == 0 && left_ >= 1);
    if (pass) {
      left_ -= 1;
      passed.push_back({error_stream, std::move(text)});
      continue;
    }
    if (dropped_++ == 0) since_ = now;
    ++dropped_in_all_;
    kept_bytes_ += text.size();
    kept_.push_back({error_stream, std::move(text)});
    while (kept_.size() > kKeptLines || (kept_bytes_ > kKeptBytes && kept_.size() > 1)) {
      kept_bytes_ -= kept_.front().text.size();
      kept_.pop_front();
    }
  }
  return passed;
}

std::vector<OutputLine> LineLimiter::Due(Time now) {
  if (!due_at() || now < *due_at()) return {};
  OutputLine notice = Notice();
  kept_.clear();
  kept_bytes_ = 0;
  return {std::move(notice)};
}

std::vector<OutputLine> LineLimiter::End() {
  if (dropped_ == 0) return {};
  dropped_ -= kept_.size();
  dropped_in_all_ -= kept_.size();
  std::vector<OutputLine> lines;
  if (dropped_ > 0) lines.push_back(Notice());
  std::move(kept_.begin(), kept_.end(), std::back_inserter(lines));
  kept_.clear();
  return lines;
}

OutputLine LineLimiter::Notice() {
  std::string count = std::to_string(dropped_);
  dropped_ = 0;
  return {true, "[ds-agent: " + count + (count == "1" ? " line" : " lines") +
                    " dropped in the last second: more than launch.log_lines_per_second, " + JsonNumber(rate_) + "]"};
}

}  // namespace ds
