// DeepSpeed's optimizers and schedules: parameters, defaults, what is refused.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/optimizers.h"

namespace ds {
namespace {

using Type = Parameter::Type;

Parameter LearningRate(const char* fallback) { return {"lr", Type::number, fallback, "learning rate"}; }
Parameter WeightDecay(const char* meaning) { return {"weight_decay", Type::number, "0", meaning}; }

std::vector<FixedParameter> AdamFixed() {
  return {{"amsgrad", "false", "this version has no AMSGrad"},
          {"set_grad_none", "any", "gradients are overwritten, not kept"},
          {"fp32_optimizer_states", "true", "optimizer states are fp32"},
          {"max_grad_norm", "0", "gradient_clipping has its place at the top of the deepspeed section"}};
}

std::vector<Parameter> AdamParameters() {
  return {LearningRate("1e-3"),
          {"betas", Type::betas, "[0.9, 0.999]", "decay of both moments"},
          {"eps", Type::number, "1e-8", "added to the root of the second moment"},
          {"weight_decay", Type::number, "0", "decoupled (AdamW) or added to the gradient; 0.01 with torch_adam"},
          {"bias_correction", Type::flag, "true", "correct the moments for their start at 0"},
          {"torch_adam", Type::flag, "false", "asks for PyTorch's: only its default weight_decay differs"},
          {"adam_w_mode", Type::flag, "true", "decoupled weight decay; false: Adam's own, type Adam only"}};
}

Parameter Momentum() { return {"momentum", Type::fraction, "0", "decay of the running gradient"}; }

const char* kStep = "step to go on from; a resumed job goes on by itself";
const char* kWarmupType = "log: as ln(step); linear";

}  // namespace

const std::vector<OptimizerInfo>& Optimizers() {
  static const std::vector<OptimizerInfo> optimizers = {
      {"AdamW", AdamParameters(), AdamFixed()},
      {"Adam", AdamParameters(), AdamFixed()},
      {"SGD",
       {LearningRate("1e-3"),
        Momentum(),
        {"dampening", Type::number, "0", "share of the gradient kept out of the momentum"},
        WeightDecay("added to the gradient"),
        {"nesterov", Type::flag, "false", "Nesterov's momentum; needs momentum, and dampening 0"}},
       {}},
      {"Lion",
       {LearningRate("1e-3"),
        {"betas", Type::betas, "[0.9, 0.999]", "weights of the update and of the momentum"},
        WeightDecay("decoupled")},
       {{"set_grad_none", "any", "gradients are overwritten, not kept"},
        {"fp32_optimizer_states", "true", "optimizer states are fp32"}}},
      {"Adagrad",
       {LearningRate("1e-2"),
        {"eps", Type::number, "1e-10", "added to the root of the sum of squares"},
        WeightDecay("added to the gradient")},
       {{"amsgrad", "false", "this version has no AMSGrad"},
        {"lr_decay", "0", "use a scheduler"},
        {"initial_accumulator_value", "0", "sums of squares begin at 0"},
        {"fp32_optimizer_states", "true", "optimizer states are fp32"}}},
      {"RMSprop",
       {LearningRate("1e-2"),
        {"alpha", Type::fraction, "0.99", "decay of the mean square of the gradient"},
        {"eps", Type::positive, "1e-8", "added to the root of the mean square"},
        Momentum(),
        WeightDecay("added to the gradient")},
       {{"centered", "false", "this version keeps no mean of the gradient"}}},
  };
  return optimizers;
}

const std::vector<FixedParameter>& OptimizerFixed() {
  static const std::vector<FixedParameter> fixed = {
      {"fused", "any", "the optimizer is always one pass over flat memory"},
      {"foreach", "any", "the optimizer is always one pass over flat memory"},
      {"maximize", "false", "the loss is minimised"},
      {"differentiable", "false", "the optimizer's step is not differentiated"},
      {"capturable", "any", "steps run from the plan, not from recorded device graphs"}};
  return fixed;
}

const std::vector<RefusedOptimizer>& RefusedOptimizers() {
  using namespace deepspeed_missing;
  static const std::vector<RefusedOptimizer> refused = {
      {"Lamb", kLamb,
       "lr betas eps weight_decay bias_correction eps_inside_sqrt max_grad_norm max_coeff min_coeff amsgrad"},
      {"Muon", kMuon, "lr momentum weight_decay muon_lr adam_lr ns_method"},
      {"OneBitAdam", kOneBit,
       "lr betas eps weight_decay bias_correction eps_inside_sqrt max_grad_norm amsgrad freeze_step cuda_aware "
       "comm_backend_name"},
      {"ZeroOneAdam", kOneBit,
       "lr betas eps weight_decay bias_correction eps_inside_sqrt max_grad_norm amsgrad var_freeze_step "
       "var_update_scaler local_step_scaler local_step_clipper cuda_aware comm_backend_name"},
      {"OneBitLamb", kOneBit,
       "lr betas eps weight_decay bias_correction eps_inside_sqrt max_grad_norm amsgrad freeze_step max_coeff "
       "min_coeff "
       "cuda_aware comm_backend_name coeff_beta factor_max factor_min factor_threshold"},
      {"MuAdam", kMup, "lr betas eps weight_decay"},
      {"MuAdamW", kMup, "lr betas eps weight_decay"},
      {"MuSGD", kMup, "lr momentum weight_decay"},
  };
  return refused;
}

const std::vector<SchedulerInfo>& Schedulers() {
  static const std::vector<SchedulerInfo> schedulers = {
      {SchedulerKind::lr_range_test,
       {{"lr_range_test_min_lr", Type::positive, "1e-3", "first learning rate"},
        {"lr_range_test_step_size", Type::whole, "2000", "steps until it has grown by the rate"},
        {"lr_range_test_step_rate", Type::number, "1.0", "growth a step size, as a part of the first"},
        {"lr_range_test_staircase", Type::flag, "false", "grow at the end of each step size only"}}},
      {SchedulerKind::one_cycle,
       {{"cycle_min_lr", Type::number, "", "learning rate at both ends of the cycle"},
        {"cycle_max_lr", Type::number, "", "learning rate at its top"},
        {"decay_lr_rate", Type::number, "0", "decay after the cycle"},
        {"cycle_first_step_size", Type::whole, "2000", "steps up"},
        {"cycle_second_step_size", Type::whole, "cycle_first_step_size", "steps down"},
        {"cycle_first_stair_count", Type::count, "0", "stairs up; 0: smooth"},
        {"cycle_second_stair_count", Type::count, "cycle_first_stair_count", "stairs down"},
        {"decay_step_size", Type::count, "0", "steps a decay; 0: no decay"},
        {"cycle_momentum", Type::flag, "true", "cycle the first beta against the learning rate; Adam, AdamW and Lion"},
        {"cycle_min_mom", Type::fraction, "0.8", "first beta at the top"},
        {"cycle_max_mom", Type::fraction, "0.9", "first beta at both ends"},
        {"decay_mom_rate", Type::number, "0", "decay of the first beta after the cycle"}}},
      {SchedulerKind::warmup_lr,
       {{"warmup_min_lr", Type::number, "0", "learning rate at step 0"},
        {"warmup_max_lr", Type::number, "optimizer.lr", "learning rate from the end of the warm-up"},
        {"warmup_num_steps", Type::count, "1000", "steps of warm-up; 0 and 1 count as 2"},
        {"warmup_type", Type::warmup_type, "log", kWarmupType}}},
      {SchedulerKind::warmup_decay_lr,
       {{"total_num_steps", Type::whole, "",
         "step at which the learning rate reaches its minimum; auto: training.steps"},
        {"warmup_min_lr", Type::number, "0", "learning rate at step 0 and at the end"},
        {"warmup_max_lr", Type::number, "1e-3", "learning rate at the end of the warm-up"},
        {"warmup_num_steps", Type::count, "1000", "steps of warm-up; 0 and 1 count as 2"},
        {"warmup_type", Type::warmup_type, "log", kWarmupType}}},
      {SchedulerKind::warmup_cosine_lr,
       {{"total_num_steps", Type::whole, "",
         "step at which the learning rate reaches its minimum; auto: training.steps"},
        {"warmup_min_ratio", Type::number, "0", "part of the optimizer's lr at step 0"},
        {"warmup_num_steps", Type::count, "1000", "steps of warm-up; 0 and 1 count as 2"},
        {"cos_min_ratio", Type::number, "0.0001", "part of the optimizer's lr at the end"},
        {"warmup_type", Type::warmup_type, "log", kWarmupType}}},
  };
  return schedulers;
}

const std::vector<FixedParameter>& SchedulerFixed() {
  static const std::vector<FixedParameter> fixed = {{"last_batch_iteration", "-1", kStep}};
  return fixed;
}

}  // namespace ds
