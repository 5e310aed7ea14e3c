#include "runtime/base/error.h"
#include "runtime/comm/store.h"

namespace ds {

void MemoryStore::Set(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string MemoryStore::Get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; }))
    throw RuntimeError("rendezvous: nobody set '" + key + "' within " + std::to_string(timeout.count()) + " ms");
  return values_[key];
}

}  // namespace ds
