// The names that certificates of one job carry: its launcher's, and one for each node.
#pragma once

#include <cstdint>
#include <string>

namespace ds {

inline std::string LauncherName(const std::string& job_id) { return "launcher." + job_id + ".deepshard"; }
/// `epoch`: an agent that was given up holds a name that is no longer any node's.
inline std::string NodeName(const std::string& job_id, uint32_t node, uint64_t epoch = 1) {
  return "node-" + std::to_string(node) + ".epoch-" + std::to_string(epoch) + "." + job_id + ".deepshard";
}

}  // namespace ds
