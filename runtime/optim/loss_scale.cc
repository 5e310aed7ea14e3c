#include "runtime/optim/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "runtime/base/error.h"

namespace ds {

LossScale::LossScale(const LossScaleConfig& config, bool enabled)
    : config_(config), enabled_(enabled), hysteresis_left_(config.hysteresis) {
  if (enabled) scale_ = config.fixed != 0 ? config.fixed : std::ldexp(1.0, config.initial_power);
}

void LossScale::Update(bool overflow) {
  if (!enabled_ || config_.fixed != 0) return;
  if (overflow) {
    good_steps_ = 0;
    if (config_.hysteresis != 1 && hysteresis_left_ != 1) {
      --hysteresis_left_;
      return;
    }
    if (scale_ == config_.min_scale) {
      std::ostringstream message;
      message << "gradients overflow at the smallest loss scale (fp16.min_loss_scale = " << config_.min_scale
              << "): the run diverges; lower the learning rate, clip gradients, or train in bf16";
      throw RuntimeError(message.str());
    }
    scale_ = std::max(scale_ / 2, config_.min_scale);
    return;
  }
  ++good_steps_;
  if (config_.consecutive_hysteresis) hysteresis_left_ = config_.hysteresis;
  const int64_t stable = good_steps_ - 1;
  if (stable > 0 && stable % config_.window == 0) {
    if (!config_.consecutive_hysteresis) hysteresis_left_ = config_.hysteresis;
    scale_ *= 2;
  }
}

void LossScale::Restore(double scale, int64_t good_steps, int hysteresis_left) {
  if (!enabled_ || config_.fixed != 0) return;
  scale_ = scale;
  good_steps_ = good_steps;
  hysteresis_left_ = hysteresis_left;
}

}  // namespace ds
