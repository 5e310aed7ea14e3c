// Learning-rate schedules: the five of DeepSpeed (deepspeed/runtime/lr_schedules.py), value for value.
//
// DeepSpeed steps its scheduler after the optimizer and sets the first rate when the scheduler is made, with
// last_batch_iteration = -1. So the k-th optimizer step (from 1) runs at the rate of last_batch_iteration = k - 2:
//   LRRangeTest     lr_range_test_min_lr
//   OneCycle        cycle_min_lr (and cycle_min_mom)
//   WarmupLR        warmup_min_lr, at the first step and at the second
//   WarmupDecayLR   warmup_min_lr, at the first step and at the second
//   WarmupCosineLR  0 at the first step, optimizer.lr * warmup_min_ratio at the second
// Steps that an overflow skips do not advance the schedule.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/job/job_spec.h"

namespace ds {

/// What a schedule sets for one optimizer step.
struct Rates {
  double lr = 0;
  std::optional<double> beta1, beta2;  ///< OneCycle with cycle_momentum and an optimizer that has betas; beta2 is 0.99
};

class Schedule {
 public:
  /// Throws UsageError where a parameter is missing, unknown or out of range.
  Schedule(const SchedulerConfig& config, const OptimizerConfig& optimizer);

  /// Of the optimizer step after `steps_done` steps, skipped ones not counted.
  Rates At(int64_t steps_done) const;

 private:
  double Parameter(const char* name) const;
  double ParameterOr(const char* name, double fallback) const;
  double WarmupGamma(int64_t iteration) const;
  double CosineRatio(int64_t iteration) const;
  Rates OneCycle(int64_t iteration) const;
  double CycleScale(int64_t iteration) const;

  SchedulerConfig config_;
  OptimizerConfig optimizer_;
};

}  // namespace ds
