// DeepSpeed's zero_optimization: ZeRO, ZeRO++, MiCS.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/deepspeed_table.h"
#include "runtime/job/read_value.h"

namespace ds::deepspeed_table {
namespace {

using enum DeepSpeedType;

/// A size in elements that goes into one member of ZeroConfig.
DeepSpeedKey Elements(const char* path, const char* fallback, int64_t low, int64_t ZeroConfig::*member,
                      const char* meaning) {
  return Honoured(path, integer, fallback, meaning, [=](DeepSpeedDraft& draft, const Value& value) {
    draft.spec.zero.*member = ReadInteger(value, low, INT64_MAX);
  });
}

void AddSharding(Keys& keys) {
  const Keys rows = {
      Honoured("zero_optimization.stage", integer, "0",
               "what is sharded: nothing, optimizer state, gradients too, parameters too",
               [](DeepSpeedDraft& draft, const Value& value) {
                 draft.spec.zero.stage = static_cast<int>(ReadInteger(value, 0, 3));
               }),
      Elements("zero_optimization.reduce_bucket_size", "5e8", 1, &ZeroConfig::reduce_bucket_size,
               "elements reduced at once; auto: hidden x hidden"),
      Elements("zero_optimization.allgather_bucket_size", "5e8", 1, &ZeroConfig::allgather_bucket_size,
               "elements gathered at once after the optimizer's step"),
      Elements("zero_optimization.stage3_prefetch_bucket_size", "5e7", 0, &ZeroConfig::prefetch_bucket_size,
               "elements gathered ahead of their use; auto under stage 3: 0.9 x hidden x hidden"),
      Elements("zero_optimization.stage3_param_persistence_threshold", "1e5", 0,
               &ZeroConfig::param_persistence_threshold,
               "smaller parameters stay whole on every rank; auto under stage 3: 10 x hidden"),
      Elements("zero_optimization.stage3_model_persistence_threshold", "9223372036854775807", 0,
               &ZeroConfig::model_persistence_threshold, "elements that stay whole so, at most"),
      Elements("zero_optimization.stage3_max_live_parameters", "1e9", 0, &ZeroConfig::max_live_parameters,
               "elements gathered at any time, at most"),
      Elements("zero_optimization.stage3_max_reuse_distance", "1e9", 0, &ZeroConfig::max_reuse_distance,
               "parameters used again within so many elements are not released"),
      Always("zero_optimization.contiguous_gradients", boolean, "true", "true",
             "a segment's gradients lie in one flat buffer"),
      Always("zero_optimization.reduce_scatter", boolean, "true", "true",
             "every stage reduces gradients by reduce-scatter"),
      Always("zero_optimization.allgather_partitions", boolean, "true", "true",
             "updated parameters are gathered by all-gather"),
      Always("zero_optimization.overlap_comm", boolean, "null", "true|false",
             "the plan overlaps communication with the backward; the bits are the same either way"),
      Always("zero_optimization.use_multi_rank_bucket_allreduce", boolean, "true", "true",
             "a bucket holds shards of several ranks"),
      Always("zero_optimization.round_robin_gradients", boolean, "false", "true|false",
             "every rank has an equal piece of every bucket, so the work is even at all times"),
      Always("zero_optimization.load_from_fp32_weights", boolean, "true", "true",
             "a checkpoint is read into the fp32 master weights"),
      Always("zero_optimization.elastic_checkpoint", boolean, "false", "true|false",
             "a checkpoint resumes with any number of ranks and under any ZeRO stage"),
      Always("zero_optimization.pipeline_loading_checkpoint", boolean, "false", "true|false",
             "every rank reads its own parts of a checkpoint"),
      Always("zero_optimization.ignore_unused_parameters", boolean, "true", "true|false",
             "the plan uses every parameter in every step"),
      Always("zero_optimization.sub_group_size", integer, "1e9", "any",
             "the optimizer goes segment by segment, in bounded memory"),
      Always("zero_optimization.stage3_gather_16bit_weights_on_model_save", boolean, "false", "true|false",
             "checkpoints are safetensors by parameter name, readable without gathering"),
      Always("zero_optimization.stage3_module_granularity_threshold", integer, "0", "any",
             "segments are gathered whole: their small modules are not gathered one by one"),
      Refused("zero_optimization.stage3_use_all_reduce_for_fetch_params", boolean, "false",
              "parameters are gathered with all-gather"),
      Refused("zero_optimization.stage3_allgather_sequential", boolean, "false", "the plan orders the gathers"),
      Always("zero_optimization.log_trace_cache_warnings", boolean, "false", "true|false",
             "the step is planned: there is no trace that could become invalid"),
      Always("zero_optimization.enable_sanity_checks", boolean, "false", "true|false",
             "the checker proves every plan before it runs"),
      Always("zero_optimization.memory_efficient_linear", boolean, "true", "true|false",
             "a linear layer keeps its input and no copy of weights"),
      Always("zero_optimization.override_module_apply", boolean, "true", "true|false",
             "there are no modules to override"),
      Always("zero_optimization.grad_hooks", boolean, "true", "true", "the plan reduces gradients as they come"),
      Refused("zero_optimization.legacy_stage1", boolean, "false", "there is one ZeRO-1"),
      Always("zero_optimization.leaf_module.classes", texts,
             "[transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock,"
             "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock,"
             "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock]",
             "any", "segments are gathered whole, as leaf modules are"),
      Always("zero_optimization.leaf_module.names", texts, "[]", "any",
             "segments are gathered whole, as leaf modules are"),
      Always("zero_optimization.leaf_module.name_suffixes", texts, "[]", "any",
             "segments are gathered whole, as leaf modules are"),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
}

void AddZeroPlusPlus(Keys& keys) {
  using namespace deepspeed_missing;
  const Keys rows = {
      Refused("zero_optimization.zero_quantized_weights", boolean, "false", kZeroPlusPlus),
      Refused("zero_optimization.zero_quantized_nontrainable_weights", boolean, "false", kZeroPlusPlus),
      Refused("zero_optimization.zero_quantized_gradients", boolean, "false", kZeroPlusPlus),
      Refused("zero_optimization.zero_hpz_partition_size", integer, "1", kZeroPlusPlus),
      Refused("zero_optimization.zeropp_loco_param", map, "null", kZeroPlusPlus),
      Refused("zero_optimization.mics_shard_size", integer, "-1", kMics),
      Refused("zero_optimization.mics_hierarchical_params_gather", boolean, "false", kMics),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
  AddIdle(keys, "zero_optimization.zeropp_loco_param", "zero_optimization.zeropp_loco_param is refused",
          {{"err_beta", number, "0.8"}, {"reset_T", integer, "1024"}});
}

}  // namespace

Keys ZeroKeys() {
  Keys keys;
  AddSharding(keys);
  AddZeroPlusPlus(keys);
  return keys;
}

}  // namespace ds::deepspeed_table
