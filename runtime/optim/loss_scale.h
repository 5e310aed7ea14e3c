// The loss scale of fp16 training, fixed or dynamic: DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py).
//
// An overflow halves the scale once the hysteresis is used up, down to min_scale at the least; the scale doubles after
// window + 1 steps without one and then after every further `window`. An overflow at min_scale, with the hysteresis
// used up, exhausts it: there DeepSpeed raises.
#pragma once

#include <cstdint>

#include "runtime/job/job_spec.h"

namespace ds {

/// What a step did to the scale.
enum class ScaleChange { none, grew, fell, reached_floor, exhausted };

class LossScale {
 public:
  /// enabled: fp16. Otherwise the scale is 1 and Update does nothing.
  LossScale(const LossScaleConfig& config, bool enabled);

  double scale() const { return scale_; }
  bool enabled() const { return enabled_; }
  bool fixed() const { return config_.fixed != 0; }
  double floor() const { return config_.min_scale; }

  /// Tells how the step ended. `exhausted`: the scale would have to fall below its floor; it stays there.
  ScaleChange Update(bool overflow);

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
