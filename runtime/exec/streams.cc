#include "runtime/exec/streams.h"

#include <algorithm>
#include <utility>

#include "runtime/base/stacks.h"

namespace ds {

void EventTable::Reset() {
  std::lock_guard lock(mutex_);
  std::fill(done_.begin(), done_.end(), 0);
}

void EventTable::Signal(size_t action) {
  {
    std::lock_guard lock(mutex_);
    done_[action] = 1;
  }
  changed_.notify_all();
}

void EventTable::Wait(size_t action) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_[action] || cancelled_; });
  if (cancelled_) throw StreamCancelled();
}

bool EventTable::WaitFor(size_t action, std::chrono::microseconds most) {
  std::unique_lock lock(mutex_);
  const bool over = changed_.wait_for(lock, most, [&] { return done_[action] || cancelled_; });
  if (cancelled_) throw StreamCancelled();
  return over;
}

void EventTable::ThrowIfCancelled() {
  std::lock_guard lock(mutex_);
  if (cancelled_) throw StreamCancelled();
}

void EventTable::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
}

bool FirstFailure::Set(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (error_) return false;
  error_ = std::move(error);
  return true;
}

void FirstFailure::Rethrow() const {
  if (error_) std::rethrow_exception(error_);
}

StreamThread::StreamThread() : thread_([this] { Loop(); }) {}

StreamThread::~StreamThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StreamThread::Start(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_ = std::move(work);
    busy_ = true;
  }
  changed_.notify_all();
}

void StreamThread::Join() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
}

void StreamThread::Loop() {
  const StackWitness witness("a stream of the plan");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return busy_ || stopping_; });
    if (!busy_) return;
    lock.unlock();
    work_();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace ds
