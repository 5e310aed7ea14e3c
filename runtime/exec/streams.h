// Streams of a rank: threads that run a part of each step, the events that order them, and the first thing that failed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ds {

/// Thrown by EventTable::Wait on the streams that did not fail. Not an error of its own.
struct StreamCancelled {};

/// One flag an action: done in this step. Thread-safe.
class EventTable {
 public:
  explicit EventTable(size_t actions) : done_(actions, 0) {}
  /// Before a step: nothing is done. No stream may be running.
  void Reset();
  void Signal(size_t action);
  /// Returns once `action` is done. Throws StreamCancelled after Cancel.
  void Wait(size_t action);
  /// The same for so long at most; false: it is not done yet.
  bool WaitFor(size_t action, std::chrono::microseconds most);
  void ThrowIfCancelled();
  void Cancel();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> done_;
  bool cancelled_ = false;
};

/// Keeps the first failure of any stream.
class FirstFailure {
 public:
  /// True for the first caller.
  bool Set(std::exception_ptr error);
  void Rethrow() const;  ///< does nothing when nothing failed. No stream may be running

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// A thread that runs one function at a time.
class StreamThread {
 public:
  StreamThread();
  ~StreamThread();  ///< waits for the function in progress
  /// Starts `work`, which must not throw. The previous one must be done.
  void Start(std::function<void()> work);
  void Join();  ///< waits until the work is done

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace ds
