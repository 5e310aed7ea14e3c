// Promise: the loss scale moves as DeepSpeed's DynamicLossScaler moves it. Expected values follow from its rules by
// hand.
#include "runtime/optim/loss_scale.h"

#include <vector>

#include "runtime/optim/clip.h"
#include "test/catch.h"

namespace ds {
namespace {

LossScaleConfig Config(int window, int hysteresis, bool consecutive = false) {
  LossScaleConfig config;
  config.initial_power = 4;
  config.window = window;
  config.hysteresis = hysteresis;
  config.consecutive_hysteresis = consecutive;
  return config;
}

std::vector<double> Scales(LossScale scale, const std::vector<bool>& overflows) {
  std::vector<double> scales;
  for (bool overflow : overflows) {
    scale.Update(overflow);
    scales.push_back(scale.scale());
  }
  return scales;
}

TEST_CASE("the scale doubles after window + 1 good steps, then every window") {
  const std::vector<bool> good(8, false);
  CHECK(Scales(LossScale(Config(2, 1), true), good) == std::vector<double>{16, 16, 32, 32, 64, 64, 128, 128});
}

TEST_CASE("hysteresis lets overflows pass before the scale is halved") {
  const std::vector<bool> overflows(4, true);
  CHECK(Scales(LossScale(Config(100, 1), true), overflows) == std::vector<double>{8, 4, 2, 1});
  CHECK(Scales(LossScale(Config(100, 3), true), overflows) == std::vector<double>{16, 16, 8, 4});
}

TEST_CASE("hysteresis returns with the next growth, or with each good step when consecutive") {
  const std::vector<bool> steps{true, false, true, false, true};
  CHECK(Scales(LossScale(Config(100, 2, false), true), steps) == std::vector<double>{16, 16, 8, 8, 4});
  CHECK(Scales(LossScale(Config(100, 2, true), true), steps) == std::vector<double>{16, 16, 16, 16, 16});
  // Growth (after two good steps of a window of one) gives the hysteresis back.
  const std::vector<bool> growth{true, false, false, true, true};
  CHECK(Scales(LossScale(Config(1, 2, false), true), growth) == std::vector<double>{16, 16, 32, 32, 16});
}

TEST_CASE("the scale tells when it reaches its floor, and when an overflow there exhausts it") {
  LossScale scale(Config(1, 2), true);
  for (ScaleChange change : {ScaleChange::none, ScaleChange::fell, ScaleChange::fell, ScaleChange::fell,
                             ScaleChange::reached_floor, ScaleChange::exhausted, ScaleChange::exhausted})
    CHECK(scale.Update(true) == change);
  CHECK(scale.scale() == 1);
  for (ScaleChange change : {ScaleChange::none, ScaleChange::grew, ScaleChange::grew})
    CHECK(scale.Update(false) == change);
  // Growth gave the hysteresis back: the floor is two halvings and one overflow away.
  for (ScaleChange change : {ScaleChange::none, ScaleChange::fell, ScaleChange::reached_floor, ScaleChange::exhausted})
    CHECK(scale.Update(true) == change);
}

TEST_CASE("a floor that is no power of two is reached exactly") {
  LossScaleConfig config = Config(100, 1);
  config.min_scale = 3;
  LossScale scale(config, true);
  CHECK(scale.Update(true) == ScaleChange::fell);
  CHECK(scale.Update(true) == ScaleChange::fell);
  CHECK(scale.Update(true) == ScaleChange::reached_floor);
  CHECK(scale.scale() == 3);
}

TEST_CASE("a fixed scale stays, and without fp16 there is none") {
  LossScaleConfig config;
  config.fixed = 128;
  LossScale fixed(config, true);
  CHECK(fixed.Update(true) == ScaleChange::none);
  CHECK(fixed.scale() == 128);
  LossScale off(Config(1, 1), false);
  off.Update(true);
  CHECK(off.scale() == 1);
  CHECK_FALSE(off.enabled());
}

TEST_CASE("a restored scale goes on where the other stopped") {
  LossScale whole(Config(3, 2), true), resumed(Config(3, 2), true);
  const std::vector<bool> before{false, true, false, false},
      after{false, false, true, true, false, false, false, false};
  for (bool overflow : before) whole.Update(overflow);
  resumed.Restore(whole.scale(), whole.good_steps(), whole.hysteresis_left());
  CHECK(Scales(whole, after) == Scales(resumed, after));
}

TEST_CASE("clipping scales gradients down only, by torch's formula") {
  CHECK(ClipCoefficient(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(ClipCoefficient(0.5, 1.0) == 1.0);
  CHECK(ClipCoefficient(100.0, 0.0) == 1.0);
}

}  // namespace
}  // namespace ds
