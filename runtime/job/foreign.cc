#include "runtime/job/foreign.h"

#include <algorithm>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/job/deepspeed.h"
#include "runtime/job/keys.h"

namespace ds {
namespace {

struct Foreign {
  const char* name;
  size_t enough;                   ///< keys of it that tell it
  std::vector<const char*> marks;  ///< top-level keys that neither a job file nor DeepSpeed has
  const char* instead;
};

const std::vector<Foreign>& Foreigns() {
  static const std::vector<Foreign> foreigns = {
      {"a GPT-NeoX configuration",
       3,
       {"pipe_parallel_size", "model_parallel_size",     "num_layers",     "hidden_size",  "num_attention_heads",
        "seq_length",         "max_position_embeddings", "pos_emb",        "rotary_pct",   "no_weight_tying",
        "train_iters",        "lr_decay_iters",          "lr_decay_style", "data_impl",    "tokenizer_type",
        "vocab_file",         "attention_config",        "min_lr",         "log_interval", "save_interval",
        "eval_interval",      "partition_activations"},
       "give its DeepSpeed keys (batch sizes, optimizer, fp16, zero_optimization, ...) in the deepspeed section, the "
       "model's shape in model, and train_iters as training.steps"},
      {"a configuration of Hugging Face Accelerate",
       2,
       {"compute_environment", "distributed_type", "deepspeed_config", "machine_rank", "num_machines", "num_processes",
        "main_training_function", "mixed_precision", "downcast_bf16", "rdzv_backend", "same_network"},
       "give the DeepSpeed file that its deepspeed_config.deepspeed_config_file names; hosts go in a hostfile"},
      {"a LLaMA-Factory configuration",
       3,
       {"model_name_or_path", "do_train", "finetuning_type", "template", "cutoff_len", "per_device_train_batch_size",
        "num_train_epochs", "lr_scheduler_type", "preprocessing_num_workers", "overwrite_cache", "dataset_dir"},
       "give the DeepSpeed file that its deepspeed key names, and its batch size as train_micro_batch_size_per_gpu"},
      {"Hugging Face training arguments",
       3,
       {"output_dir", "per_device_train_batch_size", "per_device_eval_batch_size", "num_train_epochs", "learning_rate",
        "warmup_ratio", "logging_steps", "save_steps", "save_strategy", "eval_strategy", "max_grad_norm", "adam_beta1"},
       "give the DeepSpeed file that their deepspeed argument names, and the batch size as "
       "train_micro_batch_size_per_gpu"},
      {"an Axolotl configuration",
       3,
       {"base_model", "datasets", "adapter", "micro_batch_size", "sequence_len", "num_epochs", "val_set_size",
        "dataset_prepared_path", "sample_packing", "lora_r", "lr_scheduler", "flash_attention", "chat_template"},
       "give the DeepSpeed file that its deepspeed key names, and its batch size as train_micro_batch_size_per_gpu"},
  };
  return foreigns;
}

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string SectionOf(const std::string& path) { return path.substr(0, path.find('.')); }

/// Whether a job file's top level is a DeepSpeed configuration's: several of its keys, and no section of a job.
bool IsDeepSpeed(const Value& root) {
  size_t known = 0;
  for (const auto& field : root.fields) {
    const std::string& name = field.first;
    const bool deepspeed = std::any_of(DeepSpeedKeys().begin(), DeepSpeedKeys().end(),
                                       [&](const DeepSpeedKey& key) { return SectionOf(key.path) == name; }) ||
                           name == "optimizer" || name == "scheduler";
    const bool job = name == "deepspeed" || std::any_of(Keys().begin(), Keys().end(),
                                                        [&](const Key& key) { return SectionOf(key.path) == name; });
    if (job && !deepspeed) return false;
    if (deepspeed && !job) ++known;
  }
  return known >= 2;
}

}  // namespace

std::string DescribeForeign(const Value& section, const std::string& place) {
  const Foreign* best = nullptr;
  std::vector<std::string> best_marks;
  for (const Foreign& foreign : Foreigns()) {
    std::vector<std::string> marks;
    for (const auto& [name, value] : section.fields) {
      if (std::find(foreign.marks.begin(), foreign.marks.end(), Underscored(name)) != foreign.marks.end()) {
        marks.push_back(name);
      }
    }
    if (marks.size() >= foreign.enough && marks.size() > best_marks.size()) {
      best = &foreign;
      best_marks = marks;
    }
  }
  if (best == nullptr && place.empty() && IsDeepSpeed(section)) {
    return "this is a DeepSpeed configuration, not a job file; name it in one, as deepspeed: PATH, beside model, data "
           "and training";
  }
  if (best == nullptr) return "";
  best_marks.resize(std::min<size_t>(best_marks.size(), 3));
  return "this is " + std::string(best->name) + " (" + Join(best_marks, ", ") + ", ...), not " +
         (place.empty() ? "a job file" : "a DeepSpeed configuration") + "; " + best->instead;
}

}  // namespace ds
