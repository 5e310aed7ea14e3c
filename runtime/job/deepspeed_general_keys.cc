// DeepSpeed's top-level keys: batch sizes, communication, logging; and those of precision.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/deepspeed_table.h"
#include "runtime/job/read_value.h"

namespace ds::deepspeed_table {
namespace {

using enum DeepSpeedType;

/// A size that waits in the draft for what it must agree with.
DeepSpeedKey Waiting(const char* path, const char* fallback, int64_t least, int64_t most,
                     std::optional<int64_t> DeepSpeedDraft::*member, const char* meaning) {
  return Honoured(path, integer, fallback, meaning,
                  [=](DeepSpeedDraft& draft, const Value& value) { draft.*member = ReadInteger(value, least, most); });
}

DeepSpeedKey LossScaleCount(const char* path, const char* fallback, int low, int high, int LossScaleConfig::*member,
                            const char* meaning) {
  return Honoured(path, integer, fallback, meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    draft.spec.loss_scale.*member = static_cast<int>(ReadInteger(value, low, high));
  });
}

constexpr const char* kFp32Names = "fp32|float32|float|torch.float32";

}  // namespace

Keys GeneralKeys() {
  return {
      Waiting("train_batch_size", "null", 1, int64_t{1} << 40, &DeepSpeedDraft::train_batch_size,
              "samples a step, over all ranks"),
      Waiting("train_micro_batch_size_per_gpu", "null", 1, 1 << 20, &DeepSpeedDraft::micro_batch_size,
              "samples a rank computes at once"),
      Waiting("gradient_accumulation_steps", "null", 1, 1 << 20, &DeepSpeedDraft::accumulation, "micro-batches a step"),
      Always("managed_gradient_accumulation", boolean, "true", "true", "the plan has the accumulation in it"),
      Waiting("steps_per_print", "null", 1, int64_t{1} << 53, &DeepSpeedDraft::steps_per_print,
              "`training.log_every`, where that is not written"),
      Honoured("gradient_clipping", number, "1.0", "largest norm of all gradients together; 0: none",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.gradient_clipping = ReadNumber(value, 0, 1e300);
               }),
      Waiting("sequence_parallel_size", "null", 1, 1 << 20, &DeepSpeedDraft::sequence_parallel_size,
              "must equal `parallel.sequence`"),
      Waiting("vocabulary_size", "null", 1, int64_t{1} << 40, &DeepSpeedDraft::vocabulary_size,
              "must equal `model.vocabulary`"),
      Always("dump_state", boolean, "false", "true|false", "the run directory's job.yaml and plan/ hold the state"),
      Always("wall_clock_breakdown", boolean, "false", "true|false", "metrics.jsonl has the times of every step"),
      Always("memory_breakdown", boolean, "false", "true|false",
             "metrics.jsonl and summary.json have peak bytes of every tier"),
      Always("dataloader_drop_last", boolean, "false", "true|false",
             "every global batch is whole: samples go on over the end of the data"),
      Refused("log_level", text, "null", "there is one level: what goes wrong is told, every step is in metrics.jsonl",
              "info"),
      Refused("prescale_gradients", boolean, "false", "gradients are summed in fp32, then divided once"),
      Refused("gradient_predivide_factor", number, "1.0", "gradients are summed in fp32, then divided once"),
      Refused("gradient_allreduce_op", text, "mean",
              "the loss is the mean over the global batch's tokens, and so are gradients"),
      Refused("communication_data_type", text, "null", deepspeed_missing::kReduceType, "fp32"),
      Refused("seq_parallel_communication_data_type", text, "fp32", deepspeed_missing::kSequence),
      Refused("sparse_gradients", boolean, "false", "gradients of embeddings are dense"),
      Refused("disable_allgather", boolean, "false", "parameters are gathered with all-gather"),
      Refused("graph_harvesting", boolean, "false", "steps run from the plan, not from recorded device graphs"),
      Always("zero_allow_untested_optimizer", boolean, "false", "true|false",
             "every optimizer here runs under every ZeRO stage"),
      Always("zero_force_ds_cpu_optimizer", boolean, "true", "true|false",
             "the optimizer is this program's own on every device"),
      Waiting("allgather_size", "5e8", 1, INT64_MAX, &DeepSpeedDraft::allgather_size,
              "`zero_optimization.allgather_bucket_size`, beside `zero_optimization: true` only"),
      Always("timers.throughput.enabled", boolean, "true", "true", "throughput is always measured"),
      Always("timers.throughput.synchronized", boolean, "true", "true|false",
             "steps are timed from the outside, complete"),
  };
}

Keys PrecisionKeys() {
  Keys keys = {
      Honoured("bf16.enabled", boolean, "false",
               "weights for compute, activations and gradients of activations in bf16",
               [](DeepSpeedDraft& draft, const Value& value) { draft.bf16 = AsBool(value); }),
      Always("bf16.immediate_grad_update", boolean, "false", "true|false",
             "each micro-batch's gradients go into fp32 as they come"),
      Always("bf16.check_grad_overflow", boolean, "true", "true",
             "gradients are checked every step; see training.on_nan"),
      Refused("bf16.bf16_master_weights_and_grads", boolean, "false", "master weights and gradients are fp32"),
      Refused("bf16.bf16_optimizer_states", boolean, "false", "optimizer states are fp32"),
      Honoured("fp16.enabled", boolean, "false", "the same in fp16, with a loss scale",
               [](DeepSpeedDraft& draft, const Value& value) { draft.fp16 = AsBool(value); }),
      Honoured(
          "fp16.loss_scale", number, "0", "a fixed loss scale; 0: dynamic",
          [](DeepSpeedDraft& draft, const Value& value) { draft.spec.loss_scale.fixed = ReadNumber(value, 0, 1e30); }),
      LossScaleCount("fp16.initial_scale_power", "16", 0, 100, &LossScaleConfig::initial_power,
                     "the dynamic scale begins at 2 to this power"),
      LossScaleCount("fp16.loss_scale_window", "1000", 1, 1 << 30, &LossScaleConfig::window,
                     "good steps before it is doubled"),
      LossScaleCount("fp16.hysteresis", "2", 1, 1 << 30, &LossScaleConfig::hysteresis, "overflows before it is halved"),
      Honoured("fp16.consecutive_hysteresis", boolean, "false", "a good step gives the overflows back",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.loss_scale.consecutive_hysteresis = AsBool(value);
               }),
      Honoured(
          "fp16.min_loss_scale", number, "1", "the scale never falls below",
          [](DeepSpeedDraft& draft, const Value& value) { draft.spec.loss_scale.min_scale = ReadPositive(value); }),
      Always("fp16.auto_cast", boolean, "false", "true|false", "inputs are tokens: there is nothing to cast"),
      Refused("fp16.fp16_master_weights_and_grads", boolean, "false", "master weights and gradients are fp32"),
      Refused("data_types.grad_accum_dtype", text, "null", deepspeed_missing::kGradientType, kFp32Names),
      Refused("data_types.param_dtype", text, "null",
              "the working copy's type follows from bf16.enabled and fp16.enabled"),
      Refused("data_types.buffer_dtype", text, "null", "the models have no buffers besides parameters"),
  };
  AddSwitched(keys, "torch_autocast",
              "there is no PyTorch here; write bf16.enabled or fp16.enabled to choose the precision",
              {{"dtype", text, "null"}, {"lower_precision_safe_modules", list, "null"}});
  AddSwitched(keys, "amp", "there is no apex here; write bf16.enabled or fp16.enabled to choose the precision",
              {{"opt_level", text, "null"}, {"*", any, "null"}});
  return keys;
}

}  // namespace ds::deepspeed_table
