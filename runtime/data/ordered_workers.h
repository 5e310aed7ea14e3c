// Work done by many threads and taken back in the order in which it was given.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace ds {

/// One thread gives (Push) and takes (Pop); `threads` others work. What work(in) throws comes out of the Pop that would
/// have returned its result, so the first error in order is the one that is seen, whatever the threads did.
template <class In, class Out>
class OrderedWorkers {
 public:
  /// work: thread-safe. budget: bytes that may be in the queue before it is Full.
  OrderedWorkers(int threads, int64_t budget, std::function<Out(In&)> work)
      : most_items_(static_cast<size_t>(threads) * 4), budget_(budget), work_(std::move(work)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~OrderedWorkers() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    given_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  bool Empty() const { return items_.empty(); }
  /// Whether something must be taken before more is given.
  bool Full() const { return items_.size() >= most_items_ || (bytes_ >= budget_ && !items_.empty()); }
  /// Whether Pop would return at once.
  bool Ready() {
    std::lock_guard lock(mutex_);
    return !items_.empty() && items_.front()->done;
  }
  void Push(In in, int64_t bytes) {
    auto item = std::make_unique<Item>();
    item->in = std::move(in);
    item->bytes = bytes;
    bytes_ += bytes;
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(item.get());
      items_.push_back(std::move(item));
    }
    given_.notify_one();
  }
  /// The result of the oldest item; waits for it.
  Out Pop() {
    std::unique_ptr<Item> item;
    {
      std::unique_lock lock(mutex_);
      finished_.wait(lock, [&] { return items_.front()->done; });
      item = std::move(items_.front());
      items_.pop_front();
    }
    bytes_ -= item->bytes;
    if (item->error) std::rethrow_exception(item->error);
    return std::move(*item->out);
  }

 private:
  struct Item {
    In in;
    std::optional<Out> out;
    std::exception_ptr error;
    int64_t bytes = 0;
    bool done = false;
  };

  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      given_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
      Item& item = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        item.out = work_(item.in);
      } catch (...) {
        item.error = std::current_exception();
      }
      lock.lock();
      item.done = true;
      finished_.notify_one();
    }
  }

  size_t most_items_;
  int64_t budget_, bytes_ = 0;
  std::function<Out(In&)> work_;
  std::mutex mutex_;
  std::condition_variable given_, finished_;
  std::deque<std::unique_ptr<Item>> items_;  // changed by the giving thread alone, under the mutex
  std::deque<Item*> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ds
