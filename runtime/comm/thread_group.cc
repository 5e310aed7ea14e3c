#include "runtime/comm/thread_group.h"

#include <cstring>
#include <exception>

#include "runtime/comm/communicator.h"

namespace ds {
namespace {

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

std::string Ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : " ") + std::to_string(ranks[i]);
  return text;
}

/// "rank 0 asks for barrier, rank 2 for all_gather of 3 f32"; empty when all agree.
std::string Disagreement(const std::vector<ThreadGroup::Call>& calls) {
  for (size_t r = 1; r < calls.size(); ++r) {
    if (calls[r].operation != calls[0].operation)
      return "the ranks' operations differ: rank 0 asks for " + calls[0].operation.str() + ", rank " +
             std::to_string(r) + " for " + calls[r].operation.str();
  }
  return {};
}

}  // namespace

ThreadGroup::ThreadGroup(std::string stream, int size, std::chrono::milliseconds timeout)
    : stream_(std::move(stream)), size_(size), timeout_(timeout), waiting_(size), left_(size, false) {}

void ThreadGroup::ThrowBroken(int rank, const Operation& operation) const {
  const std::string message = CommunicatorMessage(stream_, rank, size_, operation.str(), *broken_);
  if (mismatched_) throw RuntimeError(message);
  throw CommunicatorAborted(message);
}

void ThreadGroup::Break(const std::string& reason, bool mismatch) {
  if (broken_) return;
  broken_ = reason;
  mismatched_ = mismatch;
  changed_.notify_all();
}

void ThreadGroup::FindCrossing(int rank, const Operation& operation) {
  for (int other = 0; other < size_; ++other) {
    if (other == rank || !waiting_[other]) continue;
    const Operation& theirs = *waiting_[other];
    const bool they_need_me = !theirs.point_to_point() || theirs.peer == rank;
    const bool i_need_them = !operation.point_to_point() || operation.peer == other;
    const bool meets = theirs.point_to_point() ? Pairs(theirs, operation) : !operation.point_to_point();
    if (they_need_me && i_need_them && !meets)
      Break("the ranks' operations differ: " + Rank(other) + " asks for " + theirs.str() + ", " + Rank(rank) + " for " +
                operation.str(),
            true);
  }
}

void ThreadGroup::Wait(Lock& lock, int rank, const Operation& operation, const std::function<bool()>& ready,
                       const std::function<std::vector<int>()>& missing) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  if (!ready() && !broken_) {
    FindCrossing(rank, operation);
    waiting_[rank] = operation;
  }
  while (!ready()) {
    for (int other : missing()) {
      if (left_[other]) Break(Rank(other) + " left the group", false);
    }
    if (broken_) {
      waiting_[rank].reset();
      ThrowBroken(rank, operation);
    }
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !ready()) {
      Break(Ranks(missing()) + " did not come within " + std::to_string(timeout_.count()) + " ms", false);
    }
  }
}

void ThreadGroup::Meet(int rank, int64_t number, const Call& call, const std::function<void(Meeting&)>& prepare,
                       const std::function<void(Meeting&)>& part) {
  Lock lock(mutex_);
  if (broken_) ThrowBroken(rank, call.operation);
  std::shared_ptr<Meeting>& slot = meetings_[number];
  if (!slot) slot = std::make_shared<Meeting>(size_);
  const std::shared_ptr<Meeting> meeting = slot;
  meeting->calls[rank] = call;
  meeting->present[rank] = true;
  if (++meeting->arrived == size_) {
    meetings_.erase(number);
    for (auto& waiting : waiting_) waiting.reset();
    const std::string disagreement = Disagreement(meeting->calls);
    meeting->failed = !disagreement.empty();
    if (meeting->failed) {
      Break(disagreement, true);
    } else {
      try {
        prepare(*meeting);
      } catch (const std::exception& error) {
        // The others wait for this rank's part, which will not come.
        meeting->failed = true;
        Break(Rank(rank) + " could not prepare " + call.operation.str() + ": " + error.what(), false);
        throw;
      }
    }
    changed_.notify_all();
  }
  Wait(
      lock, rank, call.operation, [&] { return meeting->arrived == size_; },
      [&] {
        std::vector<int> missing;
        for (int r = 0; r < size_; ++r) {
          if (!meeting->present[r]) missing.push_back(r);
        }
        return missing;
      });
  if (meeting->failed) ThrowBroken(rank, call.operation);

  lock.unlock();
  std::exception_ptr failure;
  try {
    part(*meeting);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  // Nothing interrupts this wait: every rank is in its own part, which needs nobody, and reads this rank's tensors.
  if (++meeting->finished == size_) changed_.notify_all();
  changed_.wait(lock, [&] { return meeting->finished == size_; });
  if (failure) std::rethrow_exception(failure);
}

std::shared_ptr<ThreadGroup::Exchange>& ThreadGroup::ExchangeOf(int from, int to) {
  std::shared_ptr<Exchange>& exchange = exchanges_[{from, to}];
  if (!exchange) exchange = std::make_shared<Exchange>();
  return exchange;
}

void ThreadGroup::Send(int rank, const Call& call) {
  const int peer = call.operation.peer;
  Lock lock(mutex_);
  if (broken_) ThrowBroken(rank, call.operation);
  const std::shared_ptr<Exchange> exchange = ExchangeOf(rank, peer);
  exchange->send = call;
  changed_.notify_all();
  Wait(
      lock, rank, call.operation, [&] { return exchange->matched; }, [&] { return std::vector<int>{peer}; });
  changed_.wait(lock, [&] { return exchange->done; });
}

void ThreadGroup::Receive(int rank, const Call& call) {
  const int peer = call.operation.peer;
  Lock lock(mutex_);
  if (broken_) ThrowBroken(rank, call.operation);
  const std::shared_ptr<Exchange> exchange = ExchangeOf(peer, rank);
  FindCrossing(rank, call.operation);
  Wait(
      lock, rank, call.operation, [&] { return exchange->send.has_value() && !broken_; },
      [&] { return std::vector<int>{peer}; });
  exchanges_.erase({peer, rank});
  exchange->matched = true;
  waiting_[rank].reset();
  waiting_[peer].reset();
  lock.unlock();
  if (call.out.bytes() > 0) std::memcpy(call.out.data, exchange->send->in.data, call.out.bytes());
  lock.lock();
  exchange->done = true;
  changed_.notify_all();
}

void ThreadGroup::Abort(const std::string& reason) noexcept {
  std::lock_guard lock(mutex_);
  Break("aborted: " + reason, false);
}

void ThreadGroup::Leave(int rank) noexcept {
  std::lock_guard lock(mutex_);
  left_[rank] = true;
  changed_.notify_all();
}

}  // namespace ds
