#include "runtime/optim/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace ds {

LossScale::LossScale(const LossScaleConfig& config, bool enabled)
    : config_(config), enabled_(enabled), hysteresis_left_(config.hysteresis) {
  if (enabled) scale_ = config.fixed != 0 ? config.fixed : std::ldexp(1.0, config.initial_power);
}

ScaleChange LossScale::Update(bool overflow) {
  if (!enabled_ || fixed()) return ScaleChange::none;
  if (overflow) {
    good_steps_ = 0;
    if (config_.hysteresis != 1 && hysteresis_left_ != 1) {
      --hysteresis_left_;
      return ScaleChange::none;
    }
    if (scale_ == config_.min_scale) return ScaleChange::exhausted;
    scale_ = std::max(scale_ / 2, config_.min_scale);
    return scale_ == config_.min_scale ? ScaleChange::reached_floor : ScaleChange::fell;
  }
  ++good_steps_;
  if (config_.consecutive_hysteresis) hysteresis_left_ = config_.hysteresis;
  const int64_t stable = good_steps_ - 1;
  if (stable <= 0 || stable % config_.window != 0) return ScaleChange::none;
  if (!config_.consecutive_hysteresis) hysteresis_left_ = config_.hysteresis;
  scale_ *= 2;
  return ScaleChange::grew;
}

void LossScale::Restore(double scale, int64_t good_steps, int hysteresis_left) {
  if (!enabled_ || config_.fixed != 0) return;
  scale_ = scale;
  good_steps_ = good_steps;
  hysteresis_left_ = hysteresis_left;
}

}  // namespace ds
