// The resolved deepspeed section, written out.
#include "runtime/base/json.h"
#include "runtime/job/deepspeed.h"
#include "runtime/job/names.h"
#include "runtime/job/offload.h"
#include "runtime/job/optimizers.h"

namespace ds {

std::string DeepSpeedYaml(const JobSpec& spec) {
  std::string out;
  const auto line = [&](int depth, const std::string& key, const std::string& value) {
    out += std::string(static_cast<size_t>(2 * depth), ' ') + key + ":" + (value.empty() ? "" : " " + value) + "\n";
  };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  line(1, "train_batch_size", std::to_string(spec.batch.train_batch_size));
  line(1, "train_micro_batch_size_per_gpu", std::to_string(spec.batch.micro_batch_size));
  line(1, "gradient_accumulation_steps", std::to_string(spec.batch.accumulation));
  line(1, "gradient_clipping", JsonNumber(spec.gradient_clipping));
  line(1, "bf16", "");
  line(2, "enabled", flag(spec.precision == Precision::bf16));
  line(1, "fp16", "");
  line(2, "enabled", flag(spec.precision == Precision::fp16));
  line(2, "loss_scale", JsonNumber(spec.loss_scale.fixed));
  line(2, "initial_scale_power", std::to_string(spec.loss_scale.initial_power));
  line(2, "loss_scale_window", std::to_string(spec.loss_scale.window));
  line(2, "hysteresis", std::to_string(spec.loss_scale.hysteresis));
  line(2, "consecutive_hysteresis", flag(spec.loss_scale.consecutive_hysteresis));
  line(2, "min_loss_scale", JsonNumber(spec.loss_scale.min_scale));
  line(1, "zero_optimization", "");
  line(2, "stage", std::to_string(spec.zero.stage));
  line(2, "reduce_bucket_size", std::to_string(spec.zero.reduce_bucket_size));
  line(2, "allgather_bucket_size", std::to_string(spec.zero.allgather_bucket_size));
  line(2, "stage3_prefetch_bucket_size", std::to_string(spec.zero.prefetch_bucket_size));
  line(2, "stage3_param_persistence_threshold", std::to_string(spec.zero.param_persistence_threshold));
  line(2, "stage3_model_persistence_threshold", std::to_string(spec.zero.model_persistence_threshold));
  line(2, "stage3_max_live_parameters", std::to_string(spec.zero.max_live_parameters));
  line(2, "stage3_max_reuse_distance", std::to_string(spec.zero.max_reuse_distance));
  line(2, "offload_optimizer", "");
  line(3, "device", NameOf(spec.zero.offload_optimizer, kOffloadNames));
  if (spec.zero.offload_optimizer != OffloadTarget::none)
    line(3, "ratio", spec.zero.offload_ratio_auto ? "auto" : JsonNumber(spec.zero.offload_ratio));
  line(2, "offload_param", "");
  line(3, "device", NameOf(spec.zero.offload_param, kOffloadNames));
  if (MayUseFiles(spec)) {  // their folders are memory.nvme_path's
    line(1, "aio", "");
    line(2, "block_size", std::to_string(spec.memory.file_block_bytes));
    line(2, "queue_depth", std::to_string(spec.memory.file_queue_depth));
  }
  return out + OptimizerYaml(spec);
}

}  // namespace ds
