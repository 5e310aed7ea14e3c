#include "agent/stack_questions.h"

#include <algorithm>
#include <utility>

#include "runtime/base/stacks.h"

namespace ds {
namespace {

namespace pb = ::deepshard::v1;

constexpr auto kPatience = std::chrono::milliseconds(4000);  // a worker asks its own threads for 2 s
constexpr size_t kMaxBytes = 256 << 10;

}  // namespace

void StackQuestions::Ask(const pb::AskStacks& ask, Clock::time_point now) {
  for (auto& [rank, worker] : workers_.all()) {
    const bool named = ask.ranks().empty() || std::count(ask.ranks().begin(), ask.ranks().end(), rank) > 0;
    if (!named || !worker.running() || asked_.count(rank) > 0) continue;
    if (!worker.linked) {
      AnswerFor(worker, workers_.foreign() ? "" : "The worker has no link to its agent (yet).\n");
      continue;
    }
    if (IsStopped(worker.pid)) {
      AnswerFor(worker, "The worker is stopped; seen from outside:\n");
      continue;
    }
    pb::AgentToWorker message;
    message.mutable_ask_stacks()->add_ranks(rank);
    server_.Send(workers_.KeyOf(worker), std::move(message));
    asked_[rank] = now + kPatience;
  }
}

void StackQuestions::Answered(const Worker& worker, pb::Stacks stacks) {
  if (asked_.erase(worker.place.rank()) == 0) return;
  stacks.set_rank(worker.place.rank());
  if (stacks.text().size() > kMaxBytes) stacks.mutable_text()->resize(kMaxBytes);
  on_answer_(std::move(stacks));
}

void StackQuestions::OnTime(Clock::time_point now) {
  for (auto it = asked_.begin(); it != asked_.end();) {
    if (it->second > now) {
      ++it;
      continue;
    }
    const Worker* worker = workers_.Find(it->first);
    if (worker && worker->running()) AnswerFor(*worker, "The worker did not answer; seen from outside:\n");
    it = asked_.erase(it);
  }
}

StackQuestions::Clock::time_point StackQuestions::NextDue() const {
  Clock::time_point due = Clock::time_point::max();
  for (const auto& [rank, until] : asked_) due = std::min(due, until);
  return due;
}

void StackQuestions::AnswerFor(const Worker& worker, const std::string& why) {
  pb::Stacks stacks;
  stacks.set_rank(worker.place.rank());
  stacks.set_action(worker.health.action());
  stacks.set_text((why + ThreadsOfGroup(worker.pid)).substr(0, kMaxBytes));
  on_answer_(std::move(stacks));
}

}  // namespace ds
