#include "runtime/bench/rank_group.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "runtime/base/error.h"

namespace ds {
namespace {

using std::chrono::milliseconds;

/// When one rank fails the others fail because of it: time for the first cause to arrive.
constexpr milliseconds kCause{2000};
/// For ranks to end in peace: NCCL's communicators take a while.
constexpr milliseconds kEnd{10'000};

ProcessEnd EndOf(int status) {
  return WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
}

pid_t Wait(pid_t pid, int* status, int flags) {
  pid_t got;
  do got = ::waitpid(pid, status, flags);
  while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

RankGroup::RankGroup(const Options& options) {
  try {
    for (int rank = 0; rank < options.size; ++rank) Start(options, rank);
  } catch (...) {
    Kill();
    throw;
  }
}

RankGroup::~RankGroup() { Kill(); }

void RankGroup::Start(const Options& options, int rank) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) throw SystemError("cannot start a rank", errno);
  SpawnOptions spawn;
  const std::string device = options.gpus ? std::to_string(options.first_gpu + rank) : "cpu";
  spawn.argv = {options.program,
                "rank",
                std::to_string(rank),
                std::to_string(options.size),
                device,
                std::to_string(options.threads)};
  spawn.environment = InheritedEnvironment();
  // Ranks share the cores: threads that spin while they wait would take them from each other.
  SetVariable(spawn.environment, "OMP_WAIT_POLICY", "passive");
  if (!std::getenv("DS_LOG")) SetVariable(spawn.environment, "DS_LOG", "warning");  // the table is what is shown
  spawn.stdin_fd = pair[1];
  spawn.parent_death_signal = SIGKILL;
  spawn.new_group = true;  // a terminal's Ctrl-C is ds-bench's, which ends them
  pid_t pid = 0;
  try {
    pid = Spawn(spawn);
  } catch (...) {
    ::close(pair[0]), ::close(pair[1]);
    throw;
  }
  ::close(pair[1]);
  ranks_.push_back({});
  ranks_.back().pid = pid, ranks_.back().fd = pair[0];
}

std::vector<RankMessage> RankGroup::Ask(const RankMessage& command, milliseconds timeout) {
  for (Rank& rank : ranks_) {
    rank.answer.reset();
    SendRankMessage(rank.fd, command);  // one that is gone is found below
  }
  const auto deadline = Clock::now() + timeout;
  const auto done = [](const Rank& rank) { return rank.answer && rank.answer->front() == "done"; };
  const auto failed = [&](const Rank& rank) { return rank.end || (rank.answer && !done(rank)); };
  while (!std::all_of(ranks_.begin(), ranks_.end(), done)) {
    if (std::any_of(ranks_.begin(), ranks_.end(), failed) || Clock::now() >= deadline) ThrowFailed(timeout);
    Poll(deadline);
  }
  std::vector<RankMessage> answers;
  for (const Rank& rank : ranks_) answers.emplace_back(rank.answer->begin() + 1, rank.answer->end());
  return answers;
}

void RankGroup::Poll(Clock::time_point deadline) {
  std::vector<pollfd> fds;
  std::vector<Rank*> heard;
  for (Rank& rank : ranks_) {
    if (rank.waits_for) deadline = std::min(deadline, rank.until);
    if (rank.end) continue;
    fds.push_back({rank.fd, POLLIN, 0});
    heard.push_back(&rank);
  }
  const auto wait = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  if (::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(wait, 0, 60'000))) > 0) {
    for (size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents) Hear(*heard[i]);
  }
  AnswerGets();
}

void RankGroup::Hear(Rank& rank) {
  const std::optional<RankMessage> message = ReceiveRankMessage(rank.fd);
  if (!message) {  // it closed its socket, which it does only by ending
    int status = 0;
    ::kill(rank.pid, SIGKILL);
    rank.end = Wait(rank.pid, &status, 0) == rank.pid ? EndOf(status) : ProcessEnd{1, 0};
    rank.pid = 0;
  } else if (message->front() == "set" && message->size() == 3) {
    store_[(*message)[1]] = (*message)[2];
  } else if (message->front() == "get" && message->size() == 3) {
    rank.waits_for = (*message)[1];
    rank.until = Clock::now() + milliseconds(std::atoll((*message)[2].c_str()));
  } else {
    rank.answer = *message;
  }
}

void RankGroup::AnswerGets() {
  for (Rank& rank : ranks_) {
    if (!rank.waits_for) continue;
    const auto value = store_.find(*rank.waits_for);
    if (value == store_.end() && Clock::now() < rank.until) continue;
    rank.waits_for.reset();
    SendRankMessage(rank.fd, value == store_.end() ? RankMessage{"none"} : RankMessage{"value", value->second});
  }
}

void RankGroup::ThrowFailed(milliseconds timeout) {
  const auto own = [](const Rank& rank) { return rank.answer && rank.answer->front() == "error"; };
  const auto until = Clock::now() + kCause;
  while (Clock::now() < until && std::none_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
           return own(rank) || (rank.end && rank.end->signal != 0);
         }))
    Poll(until);
  const auto text = [&](const Rank& rank, const std::string& why) {
    return "rank " + std::to_string(&rank - ranks_.data()) + " of " + std::to_string(size()) + ": " + why;
  };
  std::string message;
  const auto take = [&](const Rank& rank, const std::string& why) {
    if (message.empty()) message = text(rank, why);
  };
  for (const Rank& rank : ranks_)
    if (own(rank)) take(rank, rank.answer->back());
  for (const Rank& rank : ranks_)
    if (rank.end) take(rank, "it ended before its work was done: " + EndText(*rank.end));
  for (const Rank& rank : ranks_)
    if (rank.answer && rank.answer->front() != "done") take(rank, rank.answer->back());
  for (const Rank& rank : ranks_)
    if (!rank.answer) take(rank, "no answer within " + std::to_string(timeout.count()) + " ms");
  Kill();
  throw RuntimeError(message);
}

void RankGroup::Finish() {
  for (const Rank& rank : ranks_) {
    SendRankMessage(rank.fd, {"end"});
    ::shutdown(rank.fd, SHUT_WR);
  }
  const auto until = Clock::now() + kEnd;
  for (Rank& rank : ranks_) {
    int status = 0;
    while (rank.pid > 0 && Clock::now() < until) {
      const pid_t got = Wait(rank.pid, &status, WNOHANG);
      if (got != 0) rank.pid = 0;
      if (got == 0) std::this_thread::sleep_for(milliseconds(2));
    }
  }
  Kill();
}

void RankGroup::Kill() {
  for (const Rank& rank : ranks_)
    if (rank.pid > 0) ::kill(rank.pid, SIGKILL);
  for (Rank& rank : ranks_) {
    int status = 0;
    if (rank.pid > 0) Wait(rank.pid, &status, 0);
    rank.pid = 0;
    if (rank.fd >= 0) ::close(rank.fd);
    rank.fd = -1;
  }
}

}  // namespace ds
