// Model shapes by name, as their makers published them.
#pragma once

#include <string>
#include <vector>

#include "runtime/job/job_spec.h"

namespace ds {

struct Preset {
  std::string name;
  std::string source;  ///< whose shape it is
  /// kv_heads 0 follows heads and ffn 0 follows hidden, so that an override of those carries them along.
  ModelConfig model;
  bool own_qkv_bias = false;  ///< model.qkv_bias is the preset's own, and does not follow model.bias
};

const std::vector<Preset>& Presets();

/// The preset of that name, or nullptr.
const Preset* FindPreset(const std::string& name);

}  // namespace ds
