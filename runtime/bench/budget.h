// How long measuring may take, and how long one measurement.
#pragma once

#include <chrono>

namespace ds {

/// The time that all measurements of a run share. What comes early leaves what it does not use to those that follow.
class Budget {
 public:
  using Clock = std::chrono::steady_clock;

  /// Begins to run at once.
  explicit Budget(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  double Left() const { return std::chrono::duration<double>(end_ - Clock::now()).count(); }
  bool Over() const { return Left() <= 0; }
  /// For the next of `remaining` measurements.
  double Share(int remaining) const { return Left() > 0 && remaining > 0 ? Left() / remaining : 0; }
  /// A budget that ends after `seconds`, or with this one where that is sooner.
  Budget Part(double seconds) const { return Budget(seconds < Left() ? seconds : Left()); }

 private:
  Clock::time_point end_;
};

}  // namespace ds
