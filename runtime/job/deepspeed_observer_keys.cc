// DeepSpeed's observers: profilers, loggers, monitors, tuners.
#include "runtime/job/deepspeed_table.h"

namespace ds::deepspeed_table {
using enum DeepSpeedType;

Keys ObserverKeys() {
  Keys keys;
  AddSwitched(
      keys, "flops_profiler",
      "metrics.jsonl has mfu and the times of every step; write training.profile_steps to trace a step's actions",
      {{"recompute_fwd_factor", number, "0.0"},
       {"profile_step", integer, "1"},
       {"module_depth", integer, "-1"},
       {"top_modules", integer, "1"},
       {"detailed", boolean, "true"},
       {"output_file", text, "null"}});
  AddSwitched(
      keys, "comms_logger",
      "summary.json has the bytes moved of every kind; write training.profile_steps to trace a step's collectives",
      {{"prof_all", boolean, "true"},
       {"prof_ops", list, "[]"},
       {"verbose", boolean, "false"},
       {"debug", boolean, "false"}});
  AddSwitched(keys, "tensorboard", "metrics.jsonl has every step; convert it",
              {{"output_path", text, ""}, {"job_name", text, "DeepSpeedJobName"}});
  AddSwitched(keys, "wandb", "metrics.jsonl has every step; convert it",
              {{"group", text, "null"}, {"team", text, "null"}, {"project", text, "deepspeed"}});
  AddSwitched(keys, "csv_monitor", "metrics.jsonl has every step; convert it",
              {{"output_path", text, ""}, {"job_name", text, "DeepSpeedJobName"}});
  AddSwitched(keys, "comet", "metrics.jsonl has every step; convert it",
              {{"samples_log_interval", integer, "100"},
               {"project", text, "null"},
               {"workspace", text, "null"},
               {"api_key", text, "null"},
               {"experiment_name", text, "null"},
               {"experiment_key", text, "null"},
               {"online", boolean, "null"},
               {"mode", text, "null"}});
  AddSwitched(keys, "autotuning", "ds-launch --dry-run prices a plan before it runs; try layouts with --set",
              {{"fast", boolean, "true"},
               {"results_dir", text, "autotuning_results"},
               {"exps_dir", text, "autotuning_exps"},
               {"overwrite", boolean, "true"},
               {"metric", text, "throughput"},
               {"metric_path", text, "null"},
               {"start_profile_step", integer, "3"},
               {"end_profile_step", integer, "5"},
               {"tuner_type", text, "gridsearch"},
               {"tuner_early_stopping", integer, "5"},
               {"tuner_num_trials", integer, "50"},
               {"arg_mappings", map, "null"},
               {"max_train_batch_size", integer, "null"},
               {"min_train_batch_size", integer, "1"},
               {"max_train_micro_batch_size_per_gpu", integer, "1024"},
               {"min_train_micro_batch_size_per_gpu", integer, "1"},
               {"num_tuning_micro_batch_sizes", integer, "3"},
               {"mp_size", integer, "1"},
               {"model_info_path", text, "null"},
               {"model_info.profile", boolean, "false"},
               {"model_info.num_params", integer, "null"},
               {"model_info.hidden_size", integer, "null"},
               {"model_info.num_layers", integer, "null"}});
  AddSwitched(keys, "elasticity", "the number of ranks is fixed for a run; write batch sizes for it",
              {{"max_train_batch_size", integer, "2000"},
               {"micro_batch_sizes", list, "[2,4,6]"},
               {"min_gpus", integer, "1"},
               {"max_gpus", integer, "10000"},
               {"min_time", integer, "0"},
               {"version", number, "0.2"},
               {"prefer_larger_batch", boolean, "true"},
               {"ignore_non_elastic_batch_info", boolean, "false"},
               {"num_gpus_per_node", integer, "1"},
               {"model_parallel_size", integer, "1"}});
  return keys;
}

}  // namespace ds::deepspeed_table
