// Processes that ds-bench starts of itself, one a rank, and orders about.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/process.h"
#include "runtime/bench/rank_link.h"

namespace ds {

/// Owned by the thread that made it, with which the ranks die too: however ds-bench ends, none is left. Others that end
/// in this way, a rank's own children among them, are not its concern.
class RankGroup {
 public:
  struct Options {
    std::string program = "/proc/self/exe";  ///< ds-bench
    int size = 1;
    bool gpus = false;  ///< rank r on GPU first_gpu + r
    int first_gpu = 0;
    int threads = 1;  ///< of a rank's kernels
  };

  explicit RankGroup(const Options& options);
  /// Kills those that are left, and waits for their end.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }

  /// Gives every rank the same command and returns what each answers, without the leading "done". Throws RuntimeError
  /// that names the first rank that failed, died or did not answer in time, and why; the group is of no further use
  /// then.
  std::vector<RankMessage> Ask(const RankMessage& command, std::chrono::milliseconds timeout);

  /// Lets the ranks end in peace.
  void Finish();

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    pid_t pid = 0;
    int fd = -1;
    std::optional<std::string> waits_for;  ///< a key of the store
    Clock::time_point until;               ///< so long
    std::optional<RankMessage> answer;
    std::optional<ProcessEnd> end;
  };

  void Start(const Options& options, int rank);
  /// Reads one message of a rank.
  void Hear(Rank& rank);
  void AnswerGets();
  /// Waits for news until `deadline`, or a key that a rank waits for comes too late.
  void Poll(Clock::time_point deadline);
  void Kill();
  [[noreturn]] void ThrowFailed(std::chrono::milliseconds timeout);

  std::vector<Rank> ranks_;
  std::map<std::string, std::string> store_;
};

}  // namespace ds
