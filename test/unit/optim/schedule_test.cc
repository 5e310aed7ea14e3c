// Promise: DeepSpeed's schedules give DeepSpeed's rates, from the first step on.
#include "runtime/optim/schedule.h"

#include "runtime/base/error.h"
#include "test/catch.h"
#include "test/unit/optim/schedule_values.h"

namespace ds {
namespace {

OptimizerConfig Adam() {
  OptimizerConfig config;
  config.kind = OptimizerKind::adamw;
  config.lr = kOptimizerLr;
  return config;
}

TEST_CASE("schedules agree with DeepSpeed's") {
  for (size_t c = 0; c < kScheduleCases.size(); ++c) {
    const ScheduleCase& expected = kScheduleCases[c];
    const Schedule schedule(SchedulerConfig{expected.kind, expected.parameters}, Adam());
    REQUIRE(expected.lr.size() == 24);
    for (size_t step = 0; step < expected.lr.size(); ++step) {
      CAPTURE(c, step);
      const Rates rates = schedule.At(static_cast<int64_t>(step));
      CHECK(rates.lr == Approx(expected.lr[step]).epsilon(1e-14).margin(1e-18));
      CHECK(rates.beta1.value_or(0.9) == Approx(expected.beta1[step]).epsilon(1e-14));
      CHECK(rates.beta2.value_or(0.999) == Approx(expected.beta2[step]).epsilon(1e-14));
    }
  }
}

TEST_CASE("without a schedule the rate is the optimizer's") {
  const Schedule schedule(SchedulerConfig{}, Adam());
  CHECK(schedule.At(0).lr == kOptimizerLr);
  CHECK(schedule.At(1000).lr == kOptimizerLr);
  CHECK_FALSE(schedule.At(5).beta1.has_value());
}

TEST_CASE("OneCycle leaves an optimizer without betas alone") {
  OptimizerConfig sgd = Adam();
  sgd.kind = OptimizerKind::sgd;
  const SchedulerConfig config{SchedulerKind::one_cycle, {{"cycle_min_lr", 1e-4}, {"cycle_max_lr", 1e-2}}};
  CHECK_FALSE(Schedule(config, sgd).At(3).beta1.has_value());
  CHECK(Schedule(config, Adam()).At(3).beta1.has_value());
}

TEST_CASE("WarmupLR goes up to the optimizer's rate unless told otherwise") {
  const Schedule schedule(SchedulerConfig{SchedulerKind::warmup_lr, {{"warmup_num_steps", 4.0}}}, Adam());
  CHECK(schedule.At(100).lr == kOptimizerLr);
}

TEST_CASE("no steps of warm-up, or one, are two, as in DeepSpeed") {
  for (SchedulerKind kind :
       {SchedulerKind::warmup_lr, SchedulerKind::warmup_decay_lr, SchedulerKind::warmup_cosine_lr}) {
    const auto with = [&](double warmup) {
      return Schedule(SchedulerConfig{kind, {{"warmup_num_steps", warmup}, {"total_num_steps", 9.0}}}, Adam());
    };
    for (int step = 0; step < 12; ++step) {
      CAPTURE(step);
      CHECK(with(0).At(step).lr == with(2).At(step).lr);
      CHECK(with(1).At(step).lr == with(2).At(step).lr);
    }
  }
}

TEST_CASE("a schedule that cannot be is refused") {
  auto make = [](SchedulerKind kind, std::map<std::string, double> parameters) {
    return Schedule(SchedulerConfig{kind, std::move(parameters)}, Adam());
  };
  CHECK_THROWS_AS(make(SchedulerKind::warmup_decay_lr, {}), UsageError);
  CHECK_THROWS_AS(make(SchedulerKind::one_cycle, {{"cycle_min_lr", 1e-4}}), UsageError);
  CHECK_THROWS_AS(make(SchedulerKind::lr_range_test, {{"lr_range_test_step_size", 0.0}}), UsageError);
}

}  // namespace
}  // namespace ds
