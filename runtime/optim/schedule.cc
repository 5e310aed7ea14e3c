#include "runtime/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/error.h"

namespace ds {
namespace {

bool HasBetas(OptimizerKind kind) {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lion;
}

/// Python's math.isclose(x, 0): true for zero alone.
bool IsZero(double x) { return x == 0; }

}  // namespace

Schedule::Schedule(const SchedulerConfig& config, const OptimizerConfig& optimizer)
    : config_(config), optimizer_(optimizer) {
  switch (config_.kind) {
    case SchedulerKind::none:
      break;
    case SchedulerKind::lr_range_test:
      if (ParameterOr("lr_range_test_step_size", 2000) <= 0)
        throw UsageError("scheduler.params.lr_range_test_step_size must be positive");
      break;
    case SchedulerKind::one_cycle:
      Parameter("cycle_min_lr");
      Parameter("cycle_max_lr");
      if (ParameterOr("cycle_first_step_size", 2000) <= 0)
        throw UsageError("scheduler.params.cycle_first_step_size must be positive");
      if (ParameterOr("cycle_second_step_size", 0) < 0)
        throw UsageError("scheduler.params.cycle_second_step_size must not be negative");
      break;
    case SchedulerKind::warmup_decay_lr:
    case SchedulerKind::warmup_cosine_lr:
      Parameter("total_num_steps");
      [[fallthrough]];
    case SchedulerKind::warmup_lr:
      if (ParameterOr("warmup_num_steps", 1000) < 0)
        throw UsageError("scheduler.params.warmup_num_steps must not be negative");
      break;
  }
}

double Schedule::Parameter(const char* name) const {
  auto found = config_.parameters.find(name);
  if (found == config_.parameters.end()) throw UsageError(std::string("scheduler.params.") + name + " is missing");
  return found->second;
}

double Schedule::ParameterOr(const char* name, double fallback) const {
  auto found = config_.parameters.find(name);
  return found == config_.parameters.end() ? fallback : found->second;
}

Rates Schedule::At(int64_t steps_done) const {
  const int64_t iteration = steps_done - 1;  // DeepSpeed's last_batch_iteration
  Rates rates;
  rates.lr = optimizer_.lr;
  switch (config_.kind) {
    case SchedulerKind::none:
      break;
    case SchedulerKind::lr_range_test: {
      double interval = static_cast<double>(iteration + 1) / ParameterOr("lr_range_test_step_size", 2000);
      if (ParameterOr("lr_range_test_staircase", 0) != 0) interval = std::floor(interval);
      const double increase = 1 + ParameterOr("lr_range_test_step_rate", 1.0) * interval;
      rates.lr = ParameterOr("lr_range_test_min_lr", 1e-3) * increase;
      break;
    }
    case SchedulerKind::one_cycle:
      return OneCycle(iteration);
    case SchedulerKind::warmup_lr:
    case SchedulerKind::warmup_decay_lr: {
      const double fallback_max = config_.kind == SchedulerKind::warmup_lr ? optimizer_.lr : 0.001;
      const double low = ParameterOr("warmup_min_lr", 0.0);
      const double delta = ParameterOr("warmup_max_lr", fallback_max) - low;
      rates.lr = iteration < 0 ? low : low + delta * WarmupGamma(iteration);
      break;
    }
    case SchedulerKind::warmup_cosine_lr:
      rates.lr = iteration < 0 ? 0.0 : optimizer_.lr * CosineRatio(iteration);
      break;
  }
  return rates;
}

double Schedule::WarmupGamma(int64_t iteration) const {
  const double warmup = std::max(2.0, ParameterOr("warmup_num_steps", 1000));
  const double i = static_cast<double>(iteration);
  if (i < warmup) {
    const bool linear = ParameterOr("warmup_type", 0) != 0;
    return linear ? i / warmup : (1.0 / std::log(warmup)) * std::log(i + 1);
  }
  if (config_.kind != SchedulerKind::warmup_decay_lr) return 1.0;
  const double total = Parameter("total_num_steps");
  return std::max(0.0, (total - i) / std::max(1.0, total - warmup));
}

double Schedule::CosineRatio(int64_t iteration) const {
  const double warmup = std::max(2.0, ParameterOr("warmup_num_steps", 1000));
  const double i = static_cast<double>(iteration);
  if (i < warmup) {
    const bool linear = ParameterOr("warmup_type", 0) != 0;
    const double ratio = linear ? i / warmup : (1.0 / std::log(warmup)) * std::log(i + 1);
    const double lowest = ParameterOr("warmup_min_ratio", 0.0);
    return lowest + ratio * (1.0 - lowest);
  }
  const double decay_steps = std::max(1.0, Parameter("total_num_steps") - warmup);
  const double progress = std::min(1.0, (i - warmup + 1) / decay_steps);
  const double lowest = ParameterOr("cos_min_ratio", 0.0001);
  return std::max(0.0, lowest + (1.0 - lowest) * ((1 + std::cos(std::numbers::pi * progress)) / 2));
}

double Schedule::CycleScale(int64_t iteration) const {
  const double first = ParameterOr("cycle_first_step_size", 2000);
  const double second = ParameterOr("cycle_second_step_size", first);
  const double first_stairs = ParameterOr("cycle_first_stair_count", 0);
  const double total = first + second, step_ratio = first / total;
  const double i = static_cast<double>(iteration + 1);
  const double x = 1.0 + i / total - std::floor(1 + i / total);
  const bool rising = x <= step_ratio;
  const double stairs = rising ? first_stairs : ParameterOr("cycle_second_stair_count", first_stairs);
  if (stairs <= 0) return rising ? x / step_ratio : (x - 1) / (step_ratio - 1);
  // Stairs are cut from the whole step number, so that a boundary does not fall a stair short by rounding.
  const double within = std::fmod(i, total);
  const double position = within <= first ? within * stairs / first : (total - within) * stairs / second;
  return std::floor(position) / stairs;
}

Rates Schedule::OneCycle(int64_t iteration) const {
  const double first = ParameterOr("cycle_first_step_size", 2000);
  const double total = first + ParameterOr("cycle_second_step_size", first);
  const double decay_step = ParameterOr("decay_step_size", 0);
  const double low = Parameter("cycle_min_lr"), high = Parameter("cycle_max_lr");
  const double low_momentum = ParameterOr("cycle_min_mom", 0.8), high_momentum = ParameterOr("cycle_max_mom", 0.9);
  const double lr_decay = ParameterOr("decay_lr_rate", 0), momentum_decay = ParameterOr("decay_mom_rate", 0);

  Rates rates;
  double momentum;
  if (iteration < 0) {
    rates.lr = low;
    momentum = low_momentum;
  } else if (static_cast<double>(iteration) < total) {
    const double scale = CycleScale(iteration);
    rates.lr = low + (high - low) * scale;
    momentum = high_momentum - (high_momentum - low_momentum) * scale;
  } else {
    const double past = static_cast<double>(iteration) - total + 1;
    rates.lr = IsZero(decay_step) || IsZero(lr_decay) ? low : low / (1 + lr_decay * (past / decay_step));
    momentum = IsZero(decay_step) || IsZero(momentum_decay)
                   ? high_momentum
                   : high_momentum * (1 + momentum_decay * (past / decay_step));
  }
  if (ParameterOr("cycle_momentum", 1) != 0 && HasBetas(optimizer_.kind)) {
    rates.beta1 = momentum;
    rates.beta2 = 0.99;
  }
  return rates;
}

}  // namespace ds
