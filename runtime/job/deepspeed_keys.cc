// The table of DeepSpeed's keys (0.19) and their classes.
#include "runtime/job/deepspeed.h"
#include "runtime/job/read_value.h"

namespace ds {
namespace {

using Reader = std::function<void(DeepSpeedDraft&, const Value&)>;

DeepSpeedKey Honoured(const char* path, const char* fallback, const char* meaning, Reader read) {
  return {path, DeepSpeedClass::honoured, fallback, "", meaning, std::move(read)};
}
DeepSpeedKey Always(const char* path, const char* fallback, const char* accepts, const char* why) {
  return {path, DeepSpeedClass::by_construction, fallback, accepts, why, {}};
}
/// Only the default is accepted, or what `also` lists.
DeepSpeedKey Refused(const char* path, const char* fallback, const char* why, const char* also = "") {
  const std::string accepts = *also == '\0' ? std::string(fallback) : std::string(fallback) + "|" + also;
  return {path, DeepSpeedClass::refused, fallback, accepts, why, {}};
}

/// A size in elements that goes into one member of ZeroConfig.
DeepSpeedKey Elements(const char* path, const char* fallback, int64_t low, int64_t ZeroConfig::*member,
                      const char* meaning) {
  return Honoured(path, fallback, meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    draft.spec.zero.*member = ReadInteger(value, low, INT64_MAX);
  });
}

DeepSpeedKey BatchSize(const char* path, int64_t most, std::optional<int64_t> DeepSpeedDraft::*member,
                       const char* meaning) {
  return Honoured(path, "null", meaning,
                  [=](DeepSpeedDraft& draft, const Value& value) { draft.*member = ReadInteger(value, 1, most); });
}

DeepSpeedKey LossScaleCount(const char* path, const char* fallback, int low, int high, int LossScaleConfig::*member,
                            const char* meaning) {
  return Honoured(path, fallback, meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    draft.spec.loss_scale.*member = static_cast<int>(ReadInteger(value, low, high));
  });
}

std::vector<DeepSpeedKey> GeneralKeys() {
  return {
      BatchSize("train_batch_size", int64_t{1} << 40, &DeepSpeedDraft::train_batch_size,
                "samples a step, over all ranks"),
      BatchSize("train_micro_batch_size_per_gpu", 1 << 20, &DeepSpeedDraft::micro_batch_size,
                "samples a rank computes at once"),
      BatchSize("gradient_accumulation_steps", 1 << 20, &DeepSpeedDraft::accumulation, "micro-batches a step"),
      Honoured("steps_per_print", "null", "`training.log_every`, where that is not written",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.steps_per_print = ReadInteger(value, 1, int64_t{1} << 53);
               }),
      Honoured("gradient_clipping", "1.0", "largest norm of all gradients together; 0: none",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.gradient_clipping = ReadNumber(value, 0, 1e300);
               }),
      Honoured("sequence_parallel_size", "null", "must equal `parallel.sequence`",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.sequence_parallel_size = ReadInteger(value, 1, 1 << 20);
               }),
      Honoured("tensor_parallel.autotp_size", "0", "must equal `parallel.tensor`; 0: not set",
               [](DeepSpeedDraft& draft, const Value& value) { draft.autotp_size = ReadInteger(value, 0, 1 << 20); }),
      Refused("dump_state", "false", "the run directory's job.yaml and plan/ hold the state"),
      Always("wall_clock_breakdown", "false", "true|false", "metrics.jsonl has the times of every step"),
      Always("memory_breakdown", "false", "true|false", "metrics.jsonl and summary.json have peak bytes of every tier"),
      Always("dataloader_drop_last", "false", "true|false",
             "every global batch is whole: samples go on over the end of the data"),
      Refused("prescale_gradients", "false", "gradients are summed in fp32, then divided once"),
      Refused("gradient_predivide_factor", "1.0", "gradients are summed in fp32, then divided once"),
      Refused("gradient_allreduce_op", "mean",
              "the loss is the mean over the global batch's tokens, and so are gradients"),
      Refused("communication_data_type", "null", "this version reduces gradients in fp32 only", "fp32"),
      Refused("seq_parallel_communication_data_type", "fp32", "there is no sequence parallelism in this version"),
      Refused("data_types.grad_accum_dtype", "null", "this version accumulates gradients in fp32 only", "fp32"),
      Refused("data_types.param_dtype", "null", "the working copy's type follows from bf16.enabled and fp16.enabled"),
      Refused("data_types.buffer_dtype", "null", "the models have no buffers besides parameters"),
      Refused("sparse_gradients", "false", "gradients of embeddings are dense"),
      Refused("disable_allgather", "false", "parameters are gathered with all-gather"),
      Always("managed_gradient_accumulation", "true", "true", "the plan has the accumulation in it"),
      Refused("graph_harvesting", "false", "steps run from the plan, not from recorded device graphs"),
      Always("zero_allow_untested_optimizer", "false", "true|false",
             "every optimizer here runs under every ZeRO stage"),
      Always("zero_force_ds_cpu_optimizer", "true", "true|false",
             "the optimizer is this program's own on every device"),
      Always("timers.throughput.enabled", "true", "true", "throughput is always measured"),
      Always("timers.throughput.synchronized", "true", "true|false", "steps are timed from the outside, complete"),
      Refused("use_data_before_expert_parallelism", "false", "there is no expert parallelism in this version"),
  };
}

std::vector<DeepSpeedKey> PrecisionKeys() {
  return {
      Honoured("bf16.enabled", "false", "weights for compute, activations and gradients of activations in bf16",
               [](DeepSpeedDraft& draft, const Value& value) { draft.bf16 = AsBool(value); }),
      Always("bf16.immediate_grad_update", "false", "true|false",
             "each micro-batch's gradients go into fp32 as they come"),
      Always("bf16.check_grad_overflow", "true", "true", "gradients are checked every step; see training.on_nan"),
      Refused("bf16.bf16_master_weights_and_grads", "false", "master weights and gradients are fp32"),
      Refused("bf16.bf16_optimizer_states", "false", "optimizer states are fp32"),
      Honoured("fp16.enabled", "false", "the same in fp16, with a loss scale",
               [](DeepSpeedDraft& draft, const Value& value) { draft.fp16 = AsBool(value); }),
      Honoured(
          "fp16.loss_scale", "0", "a fixed loss scale; 0: dynamic",
          [](DeepSpeedDraft& draft, const Value& value) { draft.spec.loss_scale.fixed = ReadNumber(value, 0, 1e30); }),
      LossScaleCount("fp16.initial_scale_power", "16", 0, 100, &LossScaleConfig::initial_power,
                     "the dynamic scale begins at 2 to this power"),
      LossScaleCount("fp16.loss_scale_window", "1000", 1, 1 << 30, &LossScaleConfig::window,
                     "good steps before it is doubled"),
      LossScaleCount("fp16.hysteresis", "2", 1, 1 << 30, &LossScaleConfig::hysteresis, "overflows before it is halved"),
      Honoured("fp16.consecutive_hysteresis", "false", "a good step gives the overflows back",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.loss_scale.consecutive_hysteresis = AsBool(value);
               }),
      Honoured(
          "fp16.min_loss_scale", "1", "the scale never falls below",
          [](DeepSpeedDraft& draft, const Value& value) { draft.spec.loss_scale.min_scale = ReadPositive(value); }),
      Refused("fp16.auto_cast", "false", "inputs are tokens: there is nothing to cast"),
      Refused("fp16.fp16_master_weights_and_grads", "false", "master weights and gradients are fp32"),
      Refused("torch_autocast", "null", "there is no PyTorch here; bf16.enabled or fp16.enabled choose the precision",
              "off"),
      Refused("amp", "null", "there is no apex here; bf16.enabled or fp16.enabled choose the precision", "off"),
  };
}

std::vector<DeepSpeedKey> ZeroKeys() {
  return {
      Honoured("zero_optimization.stage", "0",
               "what is sharded: nothing, optimizer state, gradients too, parameters too",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.zero.stage = static_cast<int>(ReadInteger(value, 0, 3));
               }),
      Elements("zero_optimization.reduce_bucket_size", "5e8", 1, &ZeroConfig::reduce_bucket_size,
               "elements reduced at once"),
      Elements("zero_optimization.allgather_bucket_size", "5e8", 1, &ZeroConfig::allgather_bucket_size,
               "elements gathered at once after the optimizer's step"),
      Elements("zero_optimization.stage3_prefetch_bucket_size", "5e7", 0, &ZeroConfig::prefetch_bucket_size,
               "elements gathered ahead of their use"),
      Elements("zero_optimization.stage3_param_persistence_threshold", "1e5", 0,
               &ZeroConfig::param_persistence_threshold, "smaller parameters stay whole on every rank"),
      Elements("zero_optimization.stage3_model_persistence_threshold", "9223372036854775807", 0,
               &ZeroConfig::model_persistence_threshold, "elements that stay whole so, at most"),
      Elements("zero_optimization.stage3_max_live_parameters", "1e9", 0, &ZeroConfig::max_live_parameters,
               "elements gathered at any time, at most"),
      Elements("zero_optimization.stage3_max_reuse_distance", "1e9", 0, &ZeroConfig::max_reuse_distance,
               "parameters used again within so many elements are not released"),
      Always("zero_optimization.contiguous_gradients", "true", "true", "a segment's gradients lie in one flat buffer"),
      Always("zero_optimization.reduce_scatter", "true", "true", "every stage reduces gradients by reduce-scatter"),
      Always("zero_optimization.allgather_partitions", "true", "true", "updated parameters are gathered by all-gather"),
      Always("zero_optimization.overlap_comm", "false; stage 3: true", "true|false",
             "the plan overlaps communication with the backward; the bits are the same either way"),
      Always("zero_optimization.use_multi_rank_bucket_allreduce", "true", "true",
             "a bucket holds shards of several ranks"),
      Refused("zero_optimization.round_robin_gradients", "false", "shards are equal parts of the flat layout"),
      Always("zero_optimization.load_from_fp32_weights", "true", "true",
             "a checkpoint is read into the fp32 master weights"),
      Always("zero_optimization.elastic_checkpoint", "false", "true|false",
             "a checkpoint resumes with any number of ranks and under any ZeRO stage"),
      Always("zero_optimization.ignore_unused_parameters", "true", "true|false",
             "the plan uses every parameter in every step"),
      Always("zero_optimization.sub_group_size", "1e9", "any",
             "the optimizer goes segment by segment, in bounded memory"),
      Always("zero_optimization.stage3_gather_16bit_weights_on_model_save", "false", "true|false",
             "checkpoints are safetensors by parameter name, readable without gathering"),
      Refused("zero_optimization.stage3_module_granularity_threshold", "0", "the units of gathering are segments"),
      Refused("zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
              "parameters are gathered with all-gather"),
      Refused("zero_optimization.stage3_allgather_sequential", "false", "the plan orders the gathers"),
      Refused("zero_optimization.log_trace_cache_warnings", "false", "there is no trace: the step is planned"),
      Always("zero_optimization.enable_sanity_checks", "false", "true|false",
             "the checker proves every plan before it runs"),
      Always("zero_optimization.memory_efficient_linear", "true", "true",
             "a linear layer keeps its input and no copy of weights"),
      Always("zero_optimization.leaf_module", "null", "off",
             "segments are gathered whole: there are no modules to name"),
      Always("zero_optimization.override_module_apply", "true", "true|false", "there are no modules to override"),
      Always("zero_optimization.grad_hooks", "true", "true", "the plan reduces gradients as they come"),
      Refused("zero_optimization.zero_quantized_weights", "false", "this version has no ZeRO++"),
      Refused("zero_optimization.zero_quantized_nontrainable_weights", "false", "this version has no ZeRO++"),
      Refused("zero_optimization.zero_quantized_gradients", "false", "this version has no ZeRO++"),
      Refused("zero_optimization.zero_hpz_partition_size", "1", "this version has no ZeRO++"),
      Refused("zero_optimization.zeropp_loco_param", "null", "this version has no ZeRO++", "off"),
      Refused("zero_optimization.mics_shard_size", "-1", "this version shards over all data-parallel ranks"),
      Refused("zero_optimization.mics_hierarchical_params_gather", "false",
              "this version shards over all data-parallel ranks"),
      Refused("zero_optimization.zenflow", "null", "this version keeps the optimizer on the rank's own device", "off"),
      Refused("zero_optimization.cpu_offload", "false", "this version does not offload"),
      Refused("zero_optimization.cpu_offload_params", "false", "this version does not offload"),
      Refused("zero_optimization.cpu_offload_use_pin_memory", "false", "this version does not offload"),
  };
}

/// The keys of a section that are of no effect while its switch is off.
void AddOffloadKeys(std::vector<DeepSpeedKey>& keys) {
  const char* no = "this version does not offload: lower the micro-batch size, raise the ZeRO stage or add ranks";
  const char* idle = "of no effect while device is none";
  for (const char* path : {"zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device"}) {
    keys.push_back(Refused(path, "none", no));
  }
  for (const char* name : {"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory", "ratio"}) {
    keys.push_back(Always((std::string("zero_optimization.offload_param.") + name).c_str(), "null", "any", idle));
  }
  for (const char* name : {"nvme_path", "buffer_count", "pin_memory", "pipeline_read", "pipeline_write", "pipeline",
                           "fast_init", "ratio", "super_offload", "cpuadam_cores_perc"}) {
    keys.push_back(Always((std::string("zero_optimization.offload_optimizer.") + name).c_str(), "null", "any", idle));
  }
}

std::vector<DeepSpeedKey> OtherKeys() {
  return {
      Refused("aio.block_size", "1048576", "this version has no NVMe tier"),
      Refused("aio.queue_depth", "8", "this version has no NVMe tier"),
      Refused("aio.intra_op_parallelism", "1", "this version has no NVMe tier"),
      Refused("aio.thread_count", "1", "this version has no NVMe tier"),
      Refused("aio.single_submit", "false", "this version has no NVMe tier"),
      Refused("aio.overlap_events", "true", "this version has no NVMe tier"),
      Refused("aio.use_gds", "false", "this version has no NVMe tier"),
      Refused("activation_checkpointing.partition_activations", "false",
              "there is no tensor parallelism in this version; "
              "training.recompute saves activation memory"),
      Refused("activation_checkpointing.cpu_checkpointing", "false",
              "activations stay on the device; training.recompute saves "
              "their memory"),
      Always("activation_checkpointing.contiguous_memory_optimization", "false", "true|false",
             "activations lie in one arena"),
      Refused("activation_checkpointing.number_checkpoints", "null", "training.recompute says what is kept"),
      Refused("activation_checkpointing.synchronize_checkpoint_boundary", "false", "the plan orders what runs"),
      Refused("activation_checkpointing.profile", "false", "metrics.jsonl has the times of every step"),
      Always("checkpoint.tag_validation", "Warn", "Warn|Ignore|Fail",
             "one commit by rename: ranks cannot disagree about its name"),
      Refused("checkpoint.load_universal", "false", "this version reads its own checkpoints only"),
      Refused("checkpoint.use_node_local_storage", "false", "OUTPUT is on a file system that all nodes share"),
      Always("checkpoint.parallel_write.pipeline_stage", "false", "true|false", "every rank writes its own part"),
      Refused("checkpoint.writer", "null", "checkpoints have one writer, which syncs", "off"),
      Refused("tensor_parallel.enabled", "false", "there is no tensor parallelism in this version"),
      Refused("tensor_parallel.preset_model", "null", "there is no tensor parallelism in this version"),
      Refused("tensor_parallel.partition_config", "null", "there is no tensor parallelism in this version", "off"),
      Refused("tensor_parallel.tp_overlap_comm", "false", "there is no tensor parallelism in this version"),
      Refused("expert_parallel", "null", "there are no experts in this version", "off"),
      Refused("pipeline.pipe_partitioned", "true", "there is no pipeline in this version"),
      Refused("pipeline.grad_partitioned", "true", "there is no pipeline in this version"),
      Refused("pipeline.activation_checkpoint_interval", "0", "training.recompute says what is computed anew"),
      Refused("pipeline.use_reentrant", "true", "there is no pipeline in this version"),
      Refused("pipeline.stages", "auto", "there is no pipeline in this version"),
      Refused("pipeline.partition", "best", "there is no pipeline in this version"),
      Refused("pipeline.seed_layers", "false", "there is no pipeline in this version"),
      Refused("compile", "null", "nothing is compiled at run time: the plan does what DeepCompile does", "off"),
      Refused("hybrid_engine", "null", "this program trains; ds-generate writes text", "off"),
      Refused("flops_profiler", "null", "summary.json has predicted and measured step times", "off"),
      Refused("comms_logger", "null", "summary.json has the bytes moved of every kind", "off"),
      Refused("tensorboard", "null", "metrics.jsonl has every step; convert it", "off"),
      Refused("wandb", "null", "metrics.jsonl has every step; convert it", "off"),
      Refused("csv_monitor", "null", "metrics.jsonl has every step; convert it", "off"),
      Refused("comet", "null", "metrics.jsonl has every step; convert it", "off"),
      Refused("data_efficiency", "null", "the sampler's order depends on seed and global batch only", "off"),
      Refused("curriculum_learning", "null", "the sampler's order depends on seed and global batch only", "off"),
      Refused("progressive_layer_drop", "null", "the plan runs every layer", "off"),
      Refused("eigenvalue", "null", "it serves compression, which this version has not", "off"),
      Refused("elasticity", "null", "the number of ranks is fixed for a run; give batch sizes for it", "off"),
      Refused("autotuning", "null", "ds-launch --dry-run prices a plan before it runs", "off"),
      Refused("compression_training", "null", "this version does not compress models", "off"),
      Refused("sparse_attention", "null", "attention is dense and causal", "off"),
      Refused("weight_quantization", "null", "this version does not quantize", "off"),
      Refused("quantize_training", "null", "this version does not quantize", "off"),
      Refused("nebula", "null", "checkpoints are written by the ranks themselves", "off"),
      Refused("datastates_ckpt", "null", "checkpoints are written by the ranks themselves", "off"),
  };
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& DeepSpeedSectionFields() {
  static const std::vector<std::pair<std::string, std::string>> fields = {
      {"torch_autocast", "enabled dtype lower_precision_safe_modules"},
      {"amp",
       "enabled opt_level loss_scale keep_batchnorm_fp32 master_weights cast_model_type verbosity min_loss_scale"},
      {"zero_optimization.leaf_module", "classes names name_suffixes"},
      {"zero_optimization.zeropp_loco_param", "err_beta reset_T"},
      {"zero_optimization.zenflow",
       "topk_ratio select_strategy select_interval update_interval overlap_step offload auto_ratio full_warm_up_rounds "
       "pt_reserved_cores_perc steps_per_epoch"},
      {"checkpoint.writer",
       "type io_buffer_size io_buffer_double decoupled data_parallel io_multiplier show_statistics"},
      {"tensor_parallel.partition_config", "layer_specs use_default_specs"},
      {"expert_parallel", "enabled autoep_size preset_model use_grouped_mm score_func top_k"},
      {"compile",
       "deepcompile passes offload_activation offload_opt_states offload_parameters double_buffer free_activation "
       "symmetric_memory debug_log sync_before_reduce sync_after_reduce sync_before_allgather sync_after_allgather"},
      {"hybrid_engine",
       "enabled max_out_tokens inference_tp_size release_inference_cache pin_parameters tp_gather_partition_size "
       "enable_cuda_graph"},
      {"flops_profiler", "enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file"},
      {"comms_logger", "enabled prof_all prof_ops verbose debug"},
      {"tensorboard", "enabled output_path job_name"},
      {"wandb", "enabled group team project"},
      {"csv_monitor", "enabled output_path job_name"},
      {"comet", "enabled samples_log_interval project workspace api_key experiment_name experiment_key online mode"},
      {"data_efficiency", "enabled seed data_sampling data_routing"},
      {"curriculum_learning", "enabled curriculum_type min_difficulty max_difficulty schedule_type schedule_config"},
      {"progressive_layer_drop", "enabled theta gamma"},
      {"eigenvalue", "enabled verbose max_iter tol stability gas_boundary_resolution layer_name layer_num"},
      {"elasticity",
       "enabled max_train_batch_size micro_batch_sizes min_gpus max_gpus min_time version prefer_larger_batch "
       "ignore_non_elastic_batch_info num_gpus_per_node model_parallel_size"},
      {"autotuning",
       "enabled fast results_dir exps_dir overwrite metric start_profile_step end_profile_step tuner_type "
       "tuner_early_stopping tuner_num_trials model_info_path mp_size max_train_batch_size min_train_batch_size "
       "max_train_micro_batch_size_per_gpu min_train_micro_batch_size_per_gpu num_tuning_micro_batch_sizes "
       "arg_mappings "
       "model_info"},
      {"compression_training",
       "weight_quantization activation_quantization sparse_pruning row_pruning head_pruning channel_pruning "
       "layer_reduction"},
      {"sparse_attention",
       "mode block different_layout_per_head num_local_blocks num_global_blocks attention "
       "horizontal_global_attention num_different_global_patterns num_random_blocks local_window_blocks "
       "global_block_indices global_block_end_indices num_sliding_window_blocks"},
      {"weight_quantization", "enabled quantized_initialization post_init_quant"},
      {"quantize_training",
       "enabled quantize_verbose quantizer_kernel quantize_type quantize_bits quantize_schedule quantize_groups "
       "fp16_mixed_quantize"},
      {"nebula",
       "enabled enable_nebula_load persistent_storage_path persistent_time_interval num_of_version_in_retention "
       "load_path"},
      {"datastates_ckpt", "enabled host_cache_size"},
  };
  return fields;
}

const std::vector<std::pair<std::string, std::string>>& DeepSpeedRenames() {
  static const std::vector<std::pair<std::string, std::string>> renames = {
      {"bfloat16", "bf16"},
      {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
      {"zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold"},
      {"zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold"},
      {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
      {"zero_optimization.gather_16bit_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save",
       "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
  };
  return renames;
}

const std::vector<DeepSpeedKey>& DeepSpeedKeys() {
  static const std::vector<DeepSpeedKey> keys = [] {
    std::vector<DeepSpeedKey> all = GeneralKeys();
    for (auto part : {PrecisionKeys, ZeroKeys, OtherKeys}) {
      for (DeepSpeedKey& key : part()) all.push_back(std::move(key));
      if (part == ZeroKeys) AddOffloadKeys(all);
    }
    return all;
  }();
  return keys;
}

}  // namespace ds
