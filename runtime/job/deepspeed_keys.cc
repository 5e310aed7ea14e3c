// The table of DeepSpeed's keys (0.19) and their classes, put together.
#include <map>

#include "runtime/job/deepspeed.h"
#include "runtime/job/deepspeed_table.h"

namespace ds {

std::string TypeName(DeepSpeedType type) {
  switch (type) {
    case DeepSpeedType::boolean:
      return "true, false";
    case DeepSpeedType::integer:
      return "whole number";
    case DeepSpeedType::number:
      return "number";
    case DeepSpeedType::text:
      return "text";
    case DeepSpeedType::list:
      return "list";
    case DeepSpeedType::texts:
      return "text, or list of them";
    case DeepSpeedType::map:
      return "section";
    case DeepSpeedType::any:
      break;
  }
  return "anything";
}

const std::vector<DeepSpeedKey>& DeepSpeedKeys() {
  using namespace deepspeed_table;
  static const Keys keys = [] {
    Keys all;
    for (auto part : {GeneralKeys, PrecisionKeys, ZeroKeys, OffloadKeys, ParallelKeys, RuntimeKeys, ObserverKeys,
                      TechniqueKeys, CompressionKeys}) {
      for (DeepSpeedKey& key : part()) all.push_back(std::move(key));
    }
    return all;
  }();
  return keys;
}

const DeepSpeedKey* FindDeepSpeedKey(const std::string& path) {
  static const std::map<std::string, const DeepSpeedKey*> index = [] {
    std::map<std::string, const DeepSpeedKey*> out;
    for (const DeepSpeedKey& key : DeepSpeedKeys()) out[key.path] = &key;
    return out;
  }();
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
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
      {"zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold"},
      {"zero_optimization.use_all_reduce_for_fetch_params", "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
      {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
      {"zero_optimization.cpu_offload_params", "zero_optimization.cpu_offload_param"},
      {"tensor_parallel.tp", "tensor_parallel.tensor_parallel"},
      {"tensor_parallel.kernel_inject", "tensor_parallel.replace_with_kernel_inject"},
      {"elasticity.prefer_large_batch", "elasticity.prefer_larger_batch"},
  };
  return renames;
}

}  // namespace ds
