// DeepSpeed's compression: quantization, pruning, layer reduction.
#include "runtime/job/deepspeed_table.h"

namespace ds::deepspeed_table {
namespace {

using enum DeepSpeedType;

constexpr const char* kNo = "this version does not compress models";

/// One technique: switch and settings for all groups of modules, and settings of each group, which users name.
void AddTechnique(Keys& keys, const std::string& name, std::initializer_list<IdleKey> shared,
                  std::initializer_list<IdleKey> group) {
  const std::string section = "compression_training." + name;
  AddSwitched(keys, section + ".shared_parameters", kNo, shared);
  const std::string off = section + ".shared_parameters.enabled is false";
  AddIdle(keys, section + ".different_groups.*", off, group);
  AddIdle(keys, section + ".different_groups.*", off, {{"modules", texts, "*"}, {"related_modules", list, "null"}});
}

}  // namespace

Keys CompressionKeys() {
  Keys keys;
  AddSwitched(keys, "compression_training.layer_reduction", kNo,
              {{"keep_number_layer", any, "-"},
               {"module_name_prefix", text, "-"},
               {"teacher_layer", list, "-"},
               {"other_module_name", list, "-"}});
  AddTechnique(keys, "weight_quantization",
               {{"quantizer_kernel", boolean, "false"},
                {"schedule_offset", integer, "0"},
                {"quantize_groups", integer, "1"},
                {"quantize_verbose", boolean, "false"},
                {"quantization_type", text, "symmetric"},
                {"rounding", text, "nearest"},
                {"quantize_weight_in_forward", boolean, "false"},
                {"fp16_mixed_quantize.enabled", boolean, "false"},
                {"fp16_mixed_quantize.quantize_change_ratio", number, "0.001"}},
               {{"params.start_bits", integer, "8"},
                {"params.target_bits", integer, "8"},
                {"params.quantization_period", integer, "1"}});
  AddTechnique(keys, "activation_quantization",
               {{"quantization_type", text, "symmetric"},
                {"range_calibration", text, "dynamic"},
                {"schedule_offset", integer, "1000"}},
               {{"params.bits", integer, "8"}});
  AddTechnique(keys, "sparse_pruning",
               {{"method", text, "l1"},
                {"schedule_offset", integer, "1000"},
                {"schedule_offset_end", integer, "1000"},
                {"schedule_offset_stride", integer, "1"},
                {"block_pattern", text, "4x1"},
                {"dense_ratio", number, "0.1"},
                {"excluded_modules", list, "[]"}},
               {{"params.dense_ratio", number, "0.5"}});
  AddTechnique(keys, "row_pruning", {{"method", text, "l1"}, {"schedule_offset", integer, "1000"}},
               {{"params.dense_ratio", number, "0.5"}});
  AddTechnique(keys, "head_pruning",
               {{"method", text, "topk"}, {"schedule_offset", integer, "1000"}, {"num_heads", integer, "null"}},
               {{"params.dense_ratio", number, "0.5"}});
  AddTechnique(keys, "channel_pruning", {{"method", text, "l1"}, {"schedule_offset", integer, "1000"}},
               {{"params.dense_ratio", number, "0.5"}});
  keys.push_back(Refused("weight_quantization", map, "null", "this version does not quantize", "off"));
  AddIdle(keys, "weight_quantization", "weight_quantization.enabled is false",
          {{"enabled", boolean, "true"},
           {"quantized_initialization", map, "null"},
           {"post_init_quant", map, "null"},
           {"num_bits", integer, "8"},
           {"q_type", text, "symmetric"},
           {"q_groups", integer, "1"}});
  keys.push_back(Refused("quantize_training", map, "null", "this version does not quantize", "off"));
  return keys;
}

}  // namespace ds::deepspeed_table
