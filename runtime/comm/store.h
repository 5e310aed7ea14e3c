// The rendezvous store: small values that ranks leave for each other while they connect.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace ds {

class Store {
 public:
  virtual ~Store() = default;
  /// Leaves `value` under `key`. Thread-safe.
  virtual void Set(const std::string& key, const std::string& value) = 0;
  /// Waits for `key`. Throws RuntimeError that names the key after `timeout`, or when the job ends. Thread-safe.
  virtual std::string Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
};

/// A store that can be looked into without waiting.
class Board : public Store {
 public:
  /// Takes the value where it is there already; whether it was. Thread-safe.
  virtual bool Find(const std::string& key, std::string& value) = 0;
};

/// A store for ranks that are threads of one process.
class MemoryStore : public Store {
 public:
  void Set(const std::string& key, const std::string& value) override;
  std::string Get(const std::string& key, std::chrono::milliseconds timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace ds
