// What a node has: reported to the launcher when the agent joins, compared between nodes, kept in the run directory.
#pragma once

#include <cstdint>
#include <string>

namespace deepshard::v1 {
class NodeFacts;
}

namespace ds {

/// `token_path`, `token`: the launcher's token file, looked for to find out whether the output folder is shared.
void CollectNodeFacts(const std::string& token_path, const std::string& token, deepshard::v1::NodeFacts& facts);

/// Memory of a process in bytes (resident); 0 when it is gone.
int64_t ResidentBytes(int pid);

}  // namespace ds
