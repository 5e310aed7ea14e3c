// DeepSpeed's runtime: storage, checkpoints, activations, compilation.
#include "runtime/job/deepspeed_missing.h"
#include "runtime/job/deepspeed_table.h"
#include "runtime/job/read_value.h"

namespace ds::deepspeed_table {
using enum DeepSpeedType;

Keys RuntimeKeys() {
  using namespace deepspeed_missing;
  Keys keys;
  const Keys rows = {
      Refused("activation_checkpointing.partition_activations", boolean, "false", kPartitionActivations),
      Honoured("activation_checkpointing.cpu_checkpointing", boolean, "false",
               "true: `memory.offload_activations` is cpu, unless that is written too",
               [](DeepSpeedDraft& draft, const Value& value) { draft.cpu_checkpointing = AsBool(value); }),
      Always("activation_checkpointing.contiguous_memory_optimization", boolean, "false", "true|false",
             "activations lie in one arena"),
      Always("activation_checkpointing.number_checkpoints", integer, "null", "any",
             "the plan sizes the arena of activations; training.recompute says what is kept"),
      Always("activation_checkpointing.synchronize_checkpoint_boundary", boolean, "false", "true|false",
             "the plan orders what runs"),
      Refused("activation_checkpointing.profile", boolean, "false",
              "write training.profile_steps to trace a step's actions"),
      Always("checkpoint.tag_validation", text, "Warn", "Warn|Ignore|Fail",
             "one commit by rename: ranks cannot disagree about its name"),
      Always("checkpoint.checkpoint_serialization", boolean, "true", "true|false",
             "checkpoints are safetensors, which are read without being unpacked"),
      Always("checkpoint.load_universal", boolean, "false", "true|false",
             "every checkpoint resumes with any number of ranks: none has to be converted"),
      Refused("checkpoint.use_node_local_storage", boolean, "false", "OUTPUT is on a file system that all nodes share"),
      Always("checkpoint.parallel_write.pipeline_stage", boolean, "false", "true|false",
             "every rank writes its own part"),
      Refused("checkpoint.writer", map, "null", "every rank writes its shards with a writer of its own"),
      Refused("datastates_ckpt", map, "null", "checkpoints are written by the ranks themselves", "false"),
  };
  keys.insert(keys.end(), rows.begin(), rows.end());
  AddIdle(keys, "checkpoint.writer", "checkpoint.writer is refused",
          {{"type", text, "FAST"},
           {"io_buffer_size", integer, "67108864"},
           {"io_buffer_double", boolean, "true"},
           {"show_statistics", boolean, "false"},
           {"data_parallel", text, "null"},
           {"decoupled", boolean, "false"},
           {"io_multiplier", integer, "1"}});
  AddSwitched(keys, "nebula", "checkpoints are written by the ranks themselves",
              {{"nebula_load_path", text, "null"},
               {"enable_nebula_load", boolean, "true"},
               {"persistent_storage_path", text, "null"},
               {"persistent_time_interval", integer, "100"},
               {"num_of_version_in_retention", integer, "2"}});
  AddSwitched(keys, "compile", "nothing is compiled at run time: the plan does what DeepCompile does",
              {{"free_activation", boolean, "false"},
               {"free_activation_threshold", integer, "10485760"},
               {"offload_activation", boolean, "false"},
               {"offload_activation_pin_memory", boolean, "true"},
               {"offload_opt_states", boolean, "false"},
               {"double_buffer", boolean, "true"},
               {"symmetric_memory", boolean, "false"},
               {"debug_log", boolean, "false"},
               {"offload_parameters", boolean, "false"},
               {"sync_before_reduce", boolean, "false"},
               {"sync_after_reduce", boolean, "false"},
               {"sync_before_allgather", boolean, "false"},
               {"sync_after_allgather", boolean, "false"},
               {"keep_int_input_tensors", boolean, "true"},
               {"keep_all_input_tensors", boolean, "false"},
               {"passes", list, "null"}},
              "deepcompile");
  AddSwitched(keys, "hybrid_engine", "this program trains; ds-generate writes text",
              {{"max_out_tokens", integer, "512"},
               {"inference_tp_size", integer, "1"},
               {"release_inference_cache", boolean, "false"},
               {"pin_parameters", boolean, "true"},
               {"tp_gather_partition_size", integer, "8"},
               {"enable_cuda_graph", boolean, "false"}});
  return keys;
}

}  // namespace ds::deepspeed_table
