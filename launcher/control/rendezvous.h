// The values that ranks leave for each other while they connect, kept by the launcher for one attempt at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace ds {

/// Thread-safe. Callbacks run on the thread that makes them due, outside the lock.
class Rendezvous {
 public:
  /// The value, or nothing when the attempt is over.
  using OnValue = std::function<void(std::optional<std::string>)>;

  /// Makes `attempt` the current one: forgets the values and ends the waits of earlier ones.
  void BeginAttempt(int64_t attempt);

  /// False when `attempt` is not the current one (a worker of the past) or the store holds too much.
  bool Put(int64_t attempt, const std::string& key, const std::string& value);

  /// Calls back with the value of `key`, now or when it is put. Returns a ticket for Cancel.
  uint64_t Get(int64_t attempt, const std::string& key, OnValue on_value);

  /// Forgets a wait; its callback does not run after this returns true.
  bool Cancel(uint64_t ticket);

  static constexpr size_t kMaxBytes = 256u << 20;

 private:
  struct Wait {
    std::string key;
    OnValue on_value;
  };
  std::mutex mutex_;
  int64_t attempt_ = 0;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
  std::map<uint64_t, Wait> waits_;
  uint64_t next_ticket_ = 1;
};

}  // namespace ds
