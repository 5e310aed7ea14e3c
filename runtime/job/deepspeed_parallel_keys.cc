// DeepSpeed's parallelism beside data parallelism: tensors, pipelines, experts.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/deepspeed_table.h"
#include "runtime/job/read_value.h"

namespace ds::deepspeed_table {
namespace {

using enum DeepSpeedType;

DeepSpeedKey Degree(const char* path, const char* fallback, int64_t least,
                    std::optional<int64_t> DeepSpeedDraft::*member, const char* meaning) {
  return Honoured(path, integer, fallback, meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    draft.*member = ReadInteger(value, least, 1 << 20);
  });
}

constexpr const char* kNoTensorParts = "what goes between stages is cut over tensor-parallel ranks, and there is one";

}  // namespace

Keys ParallelKeys() {
  using namespace deepspeed_missing;
  Keys keys = {
      Degree("tensor_parallel.autotp_size", "0", 0, &DeepSpeedDraft::autotp_size,
             "must equal `parallel.tensor`; 0: not set"),
      Degree("tensor_parallel.tensor_parallel.tp_size", "1", 1, &DeepSpeedDraft::tp_size,
             "must equal `parallel.tensor`"),
      Degree("pipeline.stages", "auto", 1, &DeepSpeedDraft::pipeline_stages,
             "must equal `parallel.pipeline`; auto: does"),
      Refused("pipeline.activation_checkpoint_interval", integer, "0", "training.recompute says what is computed anew"),
      Refused("pipeline.partition", text, "best", "parallel.partition says how the model is cut"),
      Refused("pipeline.seed_layers", boolean, "false",
              "weights at the start follow from job.seed and a parameter's name, on whichever stage it is"),
      Always("pipeline.pipe_partitioned", boolean, "true", "true|false", kNoTensorParts),
      Always("pipeline.grad_partitioned", boolean, "true", "true|false", kNoTensorParts),
      Always("pipeline.use_reentrant", boolean, "true", "true|false",
             "the plan says what is computed again: there is no autograd to re-enter"),
      Refused("use_data_before_expert_parallelism", boolean, "false", kExperts),
  };
  keys[2].type = any;
  AddIdle(keys, "tensor_parallel", kTensorOff,
          {{"dtype", text, "fp16"},
           {"tp_overlap_comm", boolean, "false"},
           {"injection_policy_tuple", list, "null"},
           {"preset_model", text, "null"},
           {"keep_module_on_host", boolean, "false"},
           {"replace_with_kernel_inject", boolean, "false"},
           {"tensor_parallel.tp_grain_size", integer, "1"},
           {"tensor_parallel.mpu", any, "null"},
           {"tensor_parallel.tp_group", any, "null"},
           {"partition_config.use_default_specs", boolean, "true"},
           {"partition_config.layer_specs", list, "[]"},
           {"partition_config.strict_mode", boolean, "false"},
           {"partition_config.tp_size", integer, "1"},
           {"partition_config.embedding_partition_dim", integer, "1"},
           {"partition_config.lm_head_patterns", list, "[\"lm_head\",\"embed_out\"]"},
           {"partition_config.layer_specs[].patterns", list, "[]"},
           {"partition_config.layer_specs[].partition_type", text, "column"},
           {"partition_config.layer_specs[].shape", list, "null"},
           {"partition_config.layer_specs[].partition_dim", integer, "null"},
           {"partition_config.layer_specs[].model_types", list, "null"},
           {"partition_config.layer_specs[].gather_output", boolean, "false"},
           {"partition_config.layer_specs[].grad_allreduce", boolean, "false"}});
  AddSwitched(keys, "expert_parallel", kExperts,
              {{"autoep_size", integer, "1"},
               {"expert_tensor_parallel_size", integer, "1"},
               {"validate_folding_routing", boolean, "false"},
               {"preset_model", text, "null"},
               {"moe_layer_pattern", text, "null"},
               {"expert_pattern", text, "null"},
               {"router_pattern", text, "null"},
               {"use_grouped_mm", boolean, "true"},
               {"disable_triton_grouped_mm", boolean, "false"},
               {"route_norm", boolean, "null"},
               {"route_scale", number, "1.0"},
               {"score_apply", text, "auto"},
               {"combine_impl", text, "auto"},
               {"num_expert_groups", integer, "null"},
               {"num_limited_groups", integer, "null"},
               {"score_func", text, "auto"},
               {"top_k", any, "auto"},
               {"load_balance_coeff", any, "null"},
               {"routed_scaling_factor", any, "auto"},
               {"expert_w1", text, "null"},
               {"expert_w2", text, "null"},
               {"expert_w3", any, "null"},
               {"num_experts_attr", text, "null"},
               {"top_k_attr", text, "null"},
               {"has_shared_experts", boolean, "null"},
               {"shared_experts_pattern", text, "null"},
               {"shared_experts_gate_pattern", text, "null"}});
  return keys;
}

}  // namespace ds::deepspeed_table
