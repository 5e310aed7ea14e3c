#include "launcher/control/rendezvous.h"

#include <utility>
#include <vector>

namespace ds {

void Rendezvous::BeginAttempt(int64_t attempt) {
  std::map<uint64_t, Wait> over;
  {
    std::lock_guard lock(mutex_);
    attempt_ = attempt;
    values_.clear();
    bytes_ = 0;
    over.swap(waits_);
  }
  for (auto& [ticket, wait] : over) wait.on_value(std::nullopt);
}

bool Rendezvous::Put(int64_t attempt, const std::string& key, const std::string& value) {
  std::vector<OnValue> due;
  {
    std::lock_guard lock(mutex_);
    if (attempt != attempt_ || bytes_ + key.size() + value.size() > kMaxBytes) return false;
    bytes_ += key.size() + value.size();
    values_.insert_or_assign(key, value);
    for (auto wait = waits_.begin(); wait != waits_.end();) {
      if (wait->second.key == key) {
        due.push_back(std::move(wait->second.on_value));
        wait = waits_.erase(wait);
      } else {
        ++wait;
      }
    }
  }
  for (OnValue& on_value : due) on_value(value);
  return true;
}

uint64_t Rendezvous::Get(int64_t attempt, const std::string& key, OnValue on_value) {
  std::optional<std::string> value;
  {
    std::lock_guard lock(mutex_);
    if (attempt == attempt_) {
      auto it = values_.find(key);
      if (it == values_.end()) {
        uint64_t ticket = next_ticket_++;
        waits_[ticket] = {key, std::move(on_value)};
        return ticket;
      }
      value = it->second;
    }
  }
  on_value(std::move(value));
  return 0;
}

bool Rendezvous::Cancel(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  return waits_.erase(ticket) == 1;
}

}  // namespace ds
