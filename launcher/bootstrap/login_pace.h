// How many logins may be under way at once: as many as the other side bears. It is halved when a login is turned away
// (sshd's MaxStartups, a jump host's) and grows by one with every login that succeeds.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace ds {

class LoginPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kFirst = 32, kMost = 64;

  bool MayStart() const { return under_way_ < limit_; }
  void Started() { ++under_way_; }
  /// Its agent answered, or it failed for good: neither says that there are too many.
  void Ended(bool answered) {
    --under_way_;
    if (answered) limit_ = std::min(kMost, limit_ + 1);
  }
  /// Turned away; `started` is when the login began. Those that began before the last cut tell nothing new.
  void TurnedAway(Clock::time_point started, Clock::time_point now) {
    --under_way_;
    if (started < cut_at_) return;
    limit_ = std::max(1, limit_ / 2);
    cut_at_ = now;
  }
  int limit() const { return limit_; }

  /// How long a host waits after its attempt number `attempts` (from 1) was turned away: from 0.1 to 0.3 s, twice as
  /// long each time, at most 1.5 to 4.5 s.
  std::chrono::duration<double> Pause(int attempts) {
    const double middle = std::min(3.0, 0.2 * (1 << std::min(attempts - 1, 10)));
    return std::chrono::duration<double>(middle * std::uniform_real_distribution<>(0.5, 1.5)(random_));
  }

 private:
  int limit_ = kFirst, under_way_ = 0;
  Clock::time_point cut_at_{};
  std::mt19937 random_{std::random_device{}()};
};

}  // namespace ds
