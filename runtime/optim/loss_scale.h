// The loss scale of fp16 training, fixed or dynamic: DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py).
//
// An overflow halves the scale once the hysteresis is used up; the scale doubles after window + 1 steps without one and
// then after every further `window`.
#pragma once

#include <cstdint>

#include "runtime/job/job_spec.h"

namespace ds {

class LossScale {
 public:
  /// enabled: fp16. Otherwise the scale is 1 and Update does nothing.
  LossScale(const LossScaleConfig& config, bool enabled);

  double scale() const { return scale_; }
  bool enabled() const { return enabled_; }

  /// Tells how the step ended. Throws RuntimeError when the scale would have to fall below its minimum.
  void Update(bool overflow);

  // What a resume needs.
  int64_t good_steps() const { return good_steps_; }  ///< since the last overflow
  int hysteresis_left() const { return hysteresis_left_; }
  void Restore(double scale, int64_t good_steps, int hysteresis_left);

 private:
  LossScaleConfig config_;
  bool enabled_;
  double scale_ = 1;
  int64_t good_steps_ = 0;
  int hysteresis_left_ = 0;
};

}  // namespace ds
