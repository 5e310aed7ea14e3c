// Where the ranks of one group meet when they are threads of one process.
//
// A call of a collective is a meeting: ranks arrive, compare what they ask for, each does its own part by reading the
// others' tensors, and all leave together, so that no tensor changes while another rank reads it. Meetings are found
// by the number of collectives that a rank has begun. A send meets its receive in the same way, two ranks at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/operation.h"

namespace ds {

class ThreadGroup {
 public:
  /// What a rank brings to a meeting.
  struct Call {
    Operation operation;
    Tensor in, out;
    int color = 0, key = 0;  ///< split
  };
  struct Meeting {
    explicit Meeting(int size) : calls(size), present(size, false) {}
    std::vector<Call> calls;
    std::vector<bool> present;
    int arrived = 0, finished = 0;
    bool failed = false;  ///< nothing comes of it: the ranks ask for different things, or `prepare` threw
    /// Split: the group of each color, made by the rank that arrives last.
    std::map<int, std::shared_ptr<ThreadGroup>> groups;
  };

  ThreadGroup(std::string stream, int size, std::chrono::milliseconds timeout);

  const std::string& stream() const { return stream_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  /// Meets all ranks in the collective of this number. `prepare` runs once, in the last rank to arrive; what it
  /// throws leaves that rank's call, and breaks the group. `part` runs in every rank, with nobody leaving before all
  /// are done.
  void Meet(int rank, int64_t number, const Call& call, const std::function<void(Meeting&)>& prepare,
            const std::function<void(Meeting&)>& part);
  void Send(int rank, const Call& call);
  void Receive(int rank, const Call& call);

  void Abort(const std::string& reason) noexcept;
  /// The rank's communicator is gone: calls that need it fail from now on.
  void Leave(int rank) noexcept;

 private:
  struct Exchange {
    std::optional<Call> send;
    bool matched = false;  ///< the receiver copies now: the sender stays
    bool done = false;
  };
  using Lock = std::unique_lock<std::mutex>;

  /// Waits for `ready`, in a call that needs the ranks that `missing` lists. When the group breaks first, throws.
  void Wait(Lock& lock, int rank, const Operation& operation, const std::function<bool()>& ready,
            const std::function<std::vector<int>()>& missing);
  /// Breaks the group when another rank already waits for this one in a call that this one can never meet.
  void FindCrossing(int rank, const Operation& operation);
  void Break(const std::string& reason, bool mismatch);
  [[noreturn]] void ThrowBroken(int rank, const Operation& operation) const;
  std::shared_ptr<Exchange>& ExchangeOf(int from, int to);

  const std::string stream_;
  const int size_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::shared_ptr<Meeting>> meetings_;
  std::map<std::pair<int, int>, std::shared_ptr<Exchange>> exchanges_;  ///< by (sender, receiver)
  std::vector<std::optional<Operation>> waiting_;  ///< a rank: the call whose peers it still waits for
  std::vector<bool> left_;
  std::optional<std::string> broken_;  ///< why no further call can succeed
  bool mismatched_ = false;            ///< broken by ranks that ask for different things: an error of its own
};

}  // namespace ds
