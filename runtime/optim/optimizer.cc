#include "runtime/optim/optimizer.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace ds {

Optimizer::Optimizer(const OptimizerConfig& config, const ModelLayout& layout, int rank) : config_(config) {
  for (size_t u = 0; u < layout.units.size(); ++u) {
    const ParamUnit& unit = layout.units[u];
    AddRuns(unit, layout.ShardRanges(static_cast<int>(u), rank), shard_runs_.emplace_back());
    AddRuns(unit, {ShardRange{0, 0, unit.numel}}, whole_runs_.emplace_back());
  }
}

// Padding goes with the parameter before it: its gradient, and so its value, stays zero under every optimizer here.
void Optimizer::AddRuns(const ParamUnit& unit, const std::vector<ShardRange>& ranges, std::vector<Run>& runs) const {
  for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
    const ShardRange& range = ranges[bucket];
    const int64_t range_end = range.unit_begin + range.count;
    int64_t at = range.unit_begin;
    for (size_t p = 0; p < unit.params.size() && at < range_end; ++p) {
      const int64_t param_end = p + 1 < unit.params.size() ? unit.params[p + 1].offset : unit.numel;
      if (param_end <= at) continue;
      const int64_t end = std::min(param_end, range_end);
      const bool decay = unit.params[p].spec.decay;
      const bool extends = at != range.unit_begin && runs.back().decay == decay;
      if (extends)
        runs.back().count += end - at;
      else
        runs.push_back(Run{range, at, end - at, decay, static_cast<int>(bucket)});
      at = end;
    }
  }
}

void Optimizer::BeginStep(const Rates& rates, int64_t steps_done) {
  constexpr float kGradientScale = 1;  // StepControl has the one that counts
  const double beta1 = rates.beta1.value_or(config_.beta1), beta2 = rates.beta2.value_or(config_.beta2);
  const bool decoupled = config_.kind == OptimizerKind::adamw;
  for (int i = 0; i < 2; ++i) {
    const double decay = i == 1 ? config_.weight_decay : 0.0;
    scalars_.adam[i] = MakeAdamScalars(rates.lr, beta1, beta2, config_.eps, decay, decoupled, config_.bias_correction,
                                       steps_done + 1, kGradientScale);
    scalars_.sgd[i] = SgdScalars{kGradientScale,
                                 static_cast<float>(rates.lr),
                                 static_cast<float>(config_.momentum),
                                 static_cast<float>(1 - config_.dampening),
                                 static_cast<float>(decay),
                                 config_.nesterov,
                                 steps_done == 0};
    scalars_.lion[i] = LionScalars{kGradientScale,
                                   static_cast<float>(rates.lr),
                                   static_cast<float>(beta1),
                                   static_cast<float>(1 - beta1),
                                   static_cast<float>(beta2),
                                   static_cast<float>(1 - beta2),
                                   static_cast<float>(1 - rates.lr * decay)};
    scalars_.adagrad[i] = AdagradScalars{kGradientScale, static_cast<float>(rates.lr), static_cast<float>(config_.eps),
                                         static_cast<float>(decay)};
    scalars_.rmsprop[i] = RmsPropScalars{kGradientScale,
                                         static_cast<float>(rates.lr),
                                         static_cast<float>(config_.alpha),
                                         static_cast<float>(1 - config_.alpha),
                                         static_cast<float>(config_.eps),
                                         static_cast<float>(config_.momentum),
                                         static_cast<float>(decay)};
  }
}

void Optimizer::PlaceUnit(int unit, bool whole, const UnitState& state) const {
  for (const Run& run : whole ? whole_runs_[unit] : shard_runs_[unit])
    for (const UnitTensor* tensor : {&state.gradient, &state.master, &state.moment1, &state.moment2, &state.working})
      if (tensor->data) PlaceStepMemory(tensor->Part(run.range, run.begin, run.count));
}

void Optimizer::StepUnit(const KernelContext& context, const StepControl& control, int unit, bool whole,
                         const UnitState& state) const {
  const std::vector<Run>& runs = whole ? whole_runs_[unit] : shard_runs_[unit];
  for (const Run& run : runs) StepRun(context, scalars_, control, run, state);
}

void Optimizer::StepBucket(const KernelContext& context, const StepScalars& scalars, const StepControl& control,
                           int unit, int bucket, const UnitState& state) const {
  for (const Run& run : shard_runs_[unit])
    if (run.bucket == bucket) StepRun(context, scalars, control, run, state);
}

void Optimizer::RoundBucket(const KernelContext& context, int unit, int bucket, const UnitState& state) const {
  if (!state.working) return;
  for (const Run& run : shard_runs_[unit])
    if (run.bucket == bucket)
      Cast(context, state.master.Part(run.range, run.begin, run.count),
           state.working.Part(run.range, run.begin, run.count));
}

void Optimizer::StepRun(const KernelContext& context, const StepScalars& scalars, const StepControl& control,
                        const Run& run, const UnitState& state) const {
  auto part = [&](const UnitTensor& tensor) {
    return tensor.data ? tensor.Part(run.range, run.begin, run.count) : Tensor();
  };
  const Tensor gradient = part(state.gradient), master = part(state.master), working = part(state.working);
  switch (config_.kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return AdamStep(context, scalars.adam[run.decay], gradient, master, part(state.moment1), part(state.moment2),
                      working, control);
    case OptimizerKind::sgd:
      return SgdStep(context, scalars.sgd[run.decay], gradient, master, part(state.moment1), working, control);
    case OptimizerKind::lion:
      return LionStep(context, scalars.lion[run.decay], gradient, master, part(state.moment1), working, control);
    case OptimizerKind::adagrad:
      return AdagradStep(context, scalars.adagrad[run.decay], gradient, master, part(state.moment1), working, control);
    case OptimizerKind::rmsprop:
      return RmsPropStep(context, scalars.rmsprop[run.decay], gradient, master, part(state.moment1),
                         part(state.moment2), working, control);
  }
}

}  // namespace ds
