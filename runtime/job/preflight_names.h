// Names of what launch.skip_checks and launch.contain choose from. What the checks look at: docs/operations.md.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

/// In the order in which they are made and told.
inline constexpr std::array<const char*, 13> kCheckNames = {
    "reachability", "versions", "clock", "disk",        "shared-output", "open-files", "locked-memory",
    "processes",    "shm",      "slots", "containment", "gpu-state",     "worker"};

/// "reachability, versions, ..."
std::string CheckNameList();

/// Adds NAME[,NAME...] to `names`, which stay in the order of kCheckNames, each once. Throws UsageError that lists the
/// names for one that is unknown or empty.
void AddCheckNames(std::string_view text, std::vector<std::string>& names);

/// auto, cgroup, namespace or process.
bool IsContainMode(std::string_view name);

}  // namespace ds
