// DeepSpeed's training techniques: data efficiency, layer drop, sparse attention.
#include "runtime/job/deepspeed_table.h"

namespace ds::deepspeed_table {
using enum DeepSpeedType;

Keys TechniqueKeys() {
  Keys keys;
  AddSwitched(
      keys, "data_efficiency", "the sampler's order depends on seed and global batch only",
      {{"seed", integer, "1234"},
       {"data_sampling.enabled", boolean, "false"},
       {"data_sampling.num_epochs", integer, "1000"},
       {"data_sampling.num_workers", integer, "0"},
       {"data_sampling.pin_memory", boolean, "false"},
       {"data_sampling.curriculum_learning.enabled", boolean, "false"},
       {"data_sampling.curriculum_learning.data_cluster_path", text, "null"},
       {"data_sampling.dynamic_batching.enabled", boolean, "false"},
       {"data_sampling.dynamic_batching.metrics_path", text, "null"},
       {"data_sampling.dynamic_batching.lr_scaling_method", text, "linear"},
       {"data_sampling.dynamic_batching.min_batch_size", integer, "1"},
       {"data_sampling.dynamic_batching.max_batch_size", integer, "null"},
       {"data_sampling.dynamic_batching.sequence_picking_order", text, "dataloader"},
       {"data_sampling.dynamic_batching.max_tokens", integer, "null"},
       {"data_routing.enabled", boolean, "false"},
       {"data_routing.random_ltd.enabled", boolean, "false"},
       {"data_sampling.dynamic_batching.verbose", boolean, "false"},
       {"data_routing.random_ltd.total_layer_num", integer, "-"},
       {"data_routing.random_ltd.random_ltd_layer_num", integer, "-"},
       {"data_routing.random_ltd.random_ltd_layer_id", list, "-"},
       {"data_routing.random_ltd.model_mask_name", text, "-"},
       {"data_routing.random_ltd.model_type", text, "-"},
       {"data_routing.random_ltd.hidden_state_order", text, "-"},
       {"data_routing.random_ltd.micro_batch_size", integer, "-"},
       {"data_routing.random_ltd.global_batch_size", integer, "-"},
       {"data_routing.random_ltd.layer_token_lr_schedule", map, "null"},
       {"data_routing.random_ltd.random_ltd_schedule.min_value", integer, "-"},
       {"data_routing.random_ltd.random_ltd_schedule.max_value", integer, "-"},
       {"data_routing.random_ltd.random_ltd_schedule.schedule_type", text, "-"},
       {"data_routing.random_ltd.random_ltd_schedule.schedule_config.require_steps", integer, "-"},
       {"data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.index_to_sample_path", text, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.index_to_metric_path", text, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.difficulty_type", text, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.clustering_type", text, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.min_difficulty", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.max_difficulty", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_type", text, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.total_curriculum_step", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty_step", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.root_degree", integer, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.difficulty", list, "-"},
       {"data_sampling.curriculum_learning.curriculum_metrics.*.schedule_config.max_step", list, "-"}});
  AddSwitched(keys, "curriculum_learning", "the sampler's order depends on seed and global batch only",
              {{"curriculum_type", text, "-"},
               {"min_difficulty", integer, "-"},
               {"max_difficulty", integer, "-"},
               {"schedule_type", text, "-"},
               {"schedule_config.total_curriculum_step", integer, "-"},
               {"schedule_config.difficulty_step", integer, "-"},
               {"schedule_config.root_degree", integer, "-"},
               {"schedule_config.difficulty", list, "-"},
               {"schedule_config.max_step", list, "-"}});
  AddSwitched(keys, "progressive_layer_drop", "the plan runs every layer",
              {{"theta", number, "1.0"}, {"gamma", number, "0.001"}});
  AddSwitched(keys, "eigenvalue", "it serves compression, which this version has not",
              {{"verbose", boolean, "false"},
               {"max_iter", integer, "100"},
               {"tol", number, "0.01"},
               {"stability", number, "1e-06"},
               {"gas_boundary_resolution", integer, "1"},
               {"layer_name", text, "bert.encoder.layer"},
               {"layer_num", integer, "0"}});
  keys.push_back(Refused("sparse_attention", map, "null", "attention is dense and causal"));
  AddIdle(keys, "sparse_attention", "sparse_attention is refused",
          {{"mode", text, "fixed"},
           {"block", integer, "16"},
           {"different_layout_per_head", boolean, "false"},
           {"num_local_blocks", integer, "4"},
           {"num_global_blocks", integer, "1"},
           {"attention", text, "bidirectional"},
           {"horizontal_global_attention", boolean, "false"},
           {"num_different_global_patterns", integer, "1"},
           {"num_random_blocks", integer, "0"},
           {"local_window_blocks", list, "[4]"},
           {"global_block_indices", list, "[0]"},
           {"global_block_end_indices", list, "null"},
           {"num_sliding_window_blocks", integer, "3"}});
  return keys;
}

}  // namespace ds::deepspeed_table
