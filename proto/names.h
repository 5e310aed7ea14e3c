// The names that certificates of one job carry: its launcher's, and one for each node.
#pragma once

#include <cstdint>
#include <string>

namespace ds {

inline std::string LauncherName(const std::string& job_id) { return "launcher." + job_id + ".deepshard"; }
inline std::string NodeName(const std::string& job_id, uint32_t node) {
  return "node-" + std::to_string(node) + "." + job_id + ".deepshard";
}

}  // namespace ds
