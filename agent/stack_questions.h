// Why do workers make no progress? They are asked for their threads' stacks; of those that do not answer, and of
// programs, the agent tells what the kernel shows.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "agent/local_server.h"
#include "agent/workers.h"
#include "proto/deepshard.pb.h"

namespace ds {

class StackQuestions {
 public:
  using Clock = std::chrono::steady_clock;
  using OnAnswer = std::function<void(deepshard::v1::Stacks)>;
  /// All of them outlive it. Everything happens on the agent's main thread.
  StackQuestions(Workers& workers, LocalServer& server, OnAnswer on_answer)
      : workers_(workers), server_(server), on_answer_(std::move(on_answer)) {}

  /// Those that run of the ranks named; none named: of all.
  void Ask(const deepshard::v1::AskStacks& ask, Clock::time_point now);
  void Answered(const Worker& worker, deepshard::v1::Stacks stacks);
  /// Answers for those that had their time.
  void OnTime(Clock::time_point now);
  /// Answers for all that were asked: they are about to be killed.
  void AnswerAll() { OnTime(Clock::time_point::max()); }
  void Forget() { asked_.clear(); }
  /// When OnTime has something to do.
  Clock::time_point NextDue() const;

 private:
  void AnswerFor(const Worker& worker, const std::string& why);

  Workers& workers_;
  LocalServer& server_;
  OnAnswer on_answer_;
  std::map<uint32_t, Clock::time_point> asked_;  ///< rank -> until when it may answer itself
};

}  // namespace ds
